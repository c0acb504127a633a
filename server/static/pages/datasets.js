import { html } from "../lib/html.js";

export default function Page() {
  return html`<div class="page"><h1>datasets</h1></div>`;
}
