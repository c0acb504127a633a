/** Notes on a run, a sweep or a model: to be read, and to be written. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { get, may, sender, useWatched } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Loaded, Section, Timestamp } from "./bits.js";
import { Markdown } from "./markdown.js";
import { Problem } from "./problem.js";

const MAX_CHARACTERS = 20_000;
const PAGE = 20;

/**
 * What the journal's entries are about, as a link.
 * @param {any} entry
 */
export function subjectAddress({ kind, subject, project }) {
  if (kind === "run") return `/runs/${subject.split("/").map(encodeURIComponent).join("/")}`;
  if (kind === "sweep") return `/sweeps/${encodeURIComponent(subject)}`;
  if (kind === "snapshot") return `/datasets/${encodeURIComponent(subject.slice(0, subject.lastIndexOf("@")))}`;
  if (kind === "project") return `/?filter=${encodeURIComponent(`project = '${subject}'`)}`;
  const model = `/models/${encodeURIComponent(project)}`;
  const version = subject.slice(project.length + 1);
  return version ? `${model}?version=${encodeURIComponent(version)}` : model;
}

/**
 * The newest notes first, behind a box to write one; those on a sweep's trials and a model's versions are
 * among them.
 * @param {{kind: string, subject: string}} props
 */
export function Notes({ kind, subject }) {
  const path = `/journal?notes=true&limit=${PAGE}&kind=${kind}&subject=${encodeURIComponent(subject)}`;
  const watched = useWatched(path, { every: 10000 });
  return html`<${Section} title="Notes" aside=${html`<a class="muted" href="/journal">Journal</a>`}>
    ${may("write") && html`<${Writing} key=${path} kind=${kind} subject=${subject}
      look=${() => watched.look()} />`}
    <${Loaded} watched=${watched} part=${true}>
      ${(/** @type {any} */ data) => html`<${List} key=${path} path=${path} data=${data} subject=${subject} />`}
    <//>
  <//>`;
}

/** @param {{path: string, data: any, subject: string}} props */
function List({ path, data, subject }) {
  const { entries, older, error, more } = usePages(path, data);
  if (!entries.length) return html`<p class="muted after">Nobody has written a note yet.</p>`;
  return html`<ol class="notes">${entries.map(
    (entry) =>
      html`<li key=${entry.id}>
        <p class="muted"><b>${entry.actor}</b> <${Timestamp} time=${entry.at} />
          ${
            entry.subject !== subject &&
            html` on <a href=${subjectAddress(entry)}>${entry.subject.slice(entry.subject.indexOf("/") + 1)}</a>`
          }</p>
        <${Markdown} key=${entry.text} text=${entry.text} /></li>`,
  )}</ol>
  <${Problem} text=${error} />
  ${older && html`<p><button type="button" onClick=${more}>Show older notes</button></p>`}`;
}

/**
 * Entries page by page: the newest, which are watched, and older ones behind them.
 * @param {string} path of the newest
 * @param {any} data what is watched
 */
export function usePages(path, data) {
  const loaded = useSignal(/** @type {any[]} */ ([]));
  const older = useSignal(/** @type {string | null | undefined} */ (undefined));
  const error = useSignal("");
  const busy = useSignal(false);
  useEffect(() => {
    const ids = new Set(data.entries.map((/** @type {any} */ entry) => entry.id));
    const behind = loaded.peek().filter((entry) => !ids.has(entry.id));
    const meets = behind.length < loaded.peek().length;
    loaded.value = meets ? [...data.entries, ...behind] : data.entries;
    // More that is new than a page: what is between is not here, so what was read before is let go.
    if (!meets || older.peek() === undefined) older.value = data.older;
  }, [data]);
  const more = async () => {
    if (busy.peek() || !older.peek()) return;
    busy.value = true;
    error.value = "";
    try {
      const page = await get(`${path}&before=${encodeURIComponent(older.peek() ?? "")}`);
      const ids = new Set(loaded.peek().map((entry) => entry.id));
      loaded.value = [
        ...loaded.peek(),
        ...page.entries.filter((/** @type {any} */ entry) => !ids.has(entry.id)),
      ];
      older.value = page.older;
    } catch (failure) {
      error.value = /** @type {Error} */ (failure).message;
    } finally {
      busy.value = false;
    }
  };
  return { entries: loaded.value, older: older.value, error: error.value, busy: busy.value, more };
}

/** @param {{kind: string, subject: string, look: () => Promise<void>}} props */
function Writing({ kind, subject, look }) {
  const text = useSignal("");
  const preview = useSignal(false);
  const busy = useSignal(false);
  const failed = useSignal("");
  const send = useSignal(sender());
  const id = useMemo(() => `note-${kind}`, [kind]);
  const tooLong = [...text.value].length > MAX_CHARACTERS;
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    if (busy.value || tooLong || !text.value.trim()) return;
    busy.value = true;
    failed.value = "";
    try {
      await send.value("/journal", { kind, subject, text: text.value });
      text.value = "";
      preview.value = false;
      send.value = sender(); // the same words again are another note
      await look();
    } catch (error) {
      failed.value = /** @type {Error} */ (error).message; // the text stays in the box
    } finally {
      busy.value = false;
    }
  };
  /** @param {KeyboardEvent} event */
  const onKey = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void submit(event);
  };
  return html`<form class="note-form" onSubmit=${submit}>
    <label class="sr-only" for=${id}>Write a note, in Markdown</label>
    <textarea id=${id} rows="3" hidden=${preview.value} value=${text.value} aria-describedby=${`${id}-hint`}
      placeholder="Write a note: what was tried, why, what came out" onKeyDown=${onKey}
      onInput=${(/** @type {any} */ event) => (text.value = event.target.value)}></textarea>
    ${preview.value && html`<div class="note-preview" role="region" aria-label="Preview">
      <${Markdown} key=${text.value} text=${text.value} /></div>`}
    <${Problem} text=${tooLong ? `A note has at most ${MAX_CHARACTERS} characters.` : failed.value} />
    <div class="note-actions">
      <span class="muted" id=${`${id}-hint`}>Markdown; a note stays as it is, for good</span>
      <button type="button" aria-pressed=${preview.value} disabled=${!text.value.trim()}
        onClick=${() => (preview.value = !preview.value)}>${preview.value ? "Write" : "Preview"}</button>
      <button type="submit" class="primary" disabled=${busy.value || tooLong || !text.value.trim()}>Save note
        </button>
    </div>
  </form>`;
}
