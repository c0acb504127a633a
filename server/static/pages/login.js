import { html } from "../lib/html.js";

export default function Page() {
  return html`<div class="page"><h1>login</h1></div>`;
}
