import { html } from "../lib/html.js";

export default function Page() {
  return html`<div class="page"><h1>run</h1></div>`;
}
