/** Small parts of all pages. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { trouble } from "../lib/api.js";
import { NONE, ago, date, sentence, time, timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Problem } from "./problem.js";

/** @typedef {import("../lib/html.js").Children} Children */

/** What a status means at a glance; the word is always there, too. */
const TONES = /** @type {Record<string, string>} */ ({
  running: "busy",
  searching: "busy",
  evaluating: "busy",
  finished: "good",
  completed: "good",
  passed: "good",
  champion: "good",
  paused: "warn",
  staging: "warn",
  waiting: "warn",
  held: "warn",
  unfinished: "warn",
  preempted: "warn",
  crashed: "bad",
  failed: "bad",
  diverged: "bad",
  rejected: "bad",
  killed: "bad",
  error: "bad",
  warn: "warn",
  sent: "good",
  dead: "bad",
});

/** @param {{status: string | null | undefined, title?: string}} props */
export function Badge({ status, title }) {
  return status
    ? html`<span class=${`badge ${TONES[status] ?? "idle"}`} title=${title}>${status}
    </span>`
    : NONE;
}

/** @param {{time: import("../lib/format.js").TimeLike, relative?: boolean}} props relative: how long ago */
export function Timestamp({ time: when, relative = false }) {
  const value = date(when);
  if (!value) return html`${NONE}`;
  return html`<time datetime=${value.toISOString()} title=${timeTitle(when)}>
    ${relative ? ago(when) : time(when)}</time>`;
}

/**
 * Text to take along, such as a command.
 * @param {{text: string, shortText?: string, label?: string}} props shortText: less of it; label: for screen
 *   readers, what is copied
 */
export function Copy({ text, shortText = text, label = text }) {
  const done = useSignal(false);
  const byHand = useSignal(false);
  const copy = async (/** @type {Event} */ event) => {
    if (!(await copied(text, /** @type {HTMLElement} */ (event.currentTarget)))) {
      byHand.value = true;
      return;
    }
    done.value = true;
    setTimeout(() => (done.value = false), 1500);
  };
  const visibleText = byHand.value ? text : shortText;
  let word = done.value ? "copied" : "copy";
  if (byHand.value) word = "mark it to copy it";
  return html`<span class="copy"
    ><code title=${visibleText === text ? undefined : text}>${visibleText}</code>
      <button type="button" class="quiet small" aria-label=${`Copy ${label}`} onClick=${copy}>${word}</button>
      </span
  >`;
}

/**
 * Put a text into the clipboard; false where the browser does not allow it.
 * @param {string} text
 * @param {HTMLElement} button that was pressed
 */
async function copied(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A browser gives its clipboard only to https and this machine. Elsewhere a text is copied where it
    // stands, marked.
  }
  const field = Object.assign(document.createElement("textarea"), {
    value: text,
    readOnly: true,
    className: "sr-only",
  });
  button.before(field); // beside the button: a dialog leaves nothing else to be marked
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  button.focus();
  return done;
}

/**
 * Names and their values; what is not known is left out.
 * @param {{pairs: [string, Children][]}} props
 */
export function Facts({ pairs }) {
  const present = pairs.filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  return html`<dl class="facts">
    ${present.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/**
 * Nothing is there yet, and what to do about it.
 * @param {{title: string, command?: string, children?: Children}} props
 */
export function Empty({ title, command, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children && html`<p>${children}</p>`}
    ${command && html`<p><${Copy} text=${command} /></p>`}</div>`;
}

/**
 * @param {{title: Children, count?: number | string | undefined, children?: Children, aside?: Children}}
 *   props
 */
export function Section({ title, count, children, aside }) {
  return html`<section class="card">
    <div class="card-top"><h2>${title}${count === undefined ? "" : html` <span class="count">${count}</span>`}
      </h2>${aside}</div>
    ${children}
  </section>`;
}

/**
 * What the server says of something, or why it says nothing.
 * @param {{watched: import("../lib/api.js").Watched, part?: boolean, children: (data: any) => Children}}
 *   props part: it is not what the page is of, so that the page stands without it
 */
export function Loaded({ watched, part = false, children }) {
  const data = watched.data.value;
  const missing = data === undefined && watched.error.value?.status === 404;
  if (missing && part) return html`<p class="muted">${sentence(trouble(watched))}</p>`;
  return html`${missing && html`<h1>This is not here</h1>`}<${Problem} text=${trouble(watched)} />
    ${
      data !== undefined
        ? children(data)
        : !watched.error.value &&
          html`<div class="skeleton" role="status"><span class="sr-only">Loading</span></div>`
    }`;
}

/** @param {string} title of the tab */
export function useTitle(title) {
  useEffect(() => {
    document.title = `${title} · Halving`;
  }, [title]);
}

/**
 * A link into Dagster's UI, where the server knows it.
 * @param {{base: string | null | undefined, asset: string, partition: string}} props
 */
export function DagsterLink({ base, asset, partition }) {
  if (!base) return null;
  const query = `view=partitions&partition=${encodeURIComponent(partition)}`;
  const href = `${base.replace(/\/$/, "")}/assets/${asset}?${query}`;
  return html`<a class="button" href=${href} target="_blank" rel="noopener">Dagster ↗</a>`;
}
