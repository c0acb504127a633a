/** What went wrong, in one sentence, read aloud when it appears. */
import { sentence } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @param {{text: string}} props */
export function Problem({ text }) {
  return text
    ? html`<p class="problem" role="alert"><span aria-hidden="true">!</span>${sentence(text)}
    </p>`
    : null;
}
