import { html } from "../lib/html.js";

export default function Page() {
  return html`<div class="page"><h1>model</h1></div>`;
}
