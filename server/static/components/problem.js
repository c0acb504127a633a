/** What went wrong, in one sentence, read aloud when it appears. */
import { html } from "../lib/html.js";

/** @param {{text: string}} props */
export function Problem({ text }) {
  return text ? html`<p class="problem" role="alert"><span aria-hidden="true">!</span>${text}</p>` : null;
}
