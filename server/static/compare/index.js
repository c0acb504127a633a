import { html } from "../lib/html.js";

export default function Compare() {
  return html`<div class="page"><h1>Compare</h1></div>`;
}
