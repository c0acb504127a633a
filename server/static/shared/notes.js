/** What people wrote about the runs and sweeps of a page. */
import { Section } from "../components/bits.js";
import { timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @param {{notes: import("./payload.js").Note[]}} props */
export function Notes({ notes }) {
  if (!notes.length) return null;
  return html`<${Section} title="Notes" count=${notes.length}>
    <ol class="shared-notes">
      ${notes.map(
        (note) => html`<li key=${note.at + note.subject}>
          <p class="muted"><b>${note.subject}</b> ${note.actor}, ${timeTitle(note.at)}</p>
          <p class="note-text">${note.text}</p></li>`,
      )}
    </ol><//>`;
}
