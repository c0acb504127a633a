/** The journal: notes and what happened to runs, sweeps and models, in one order, the newest first. */
import { useEffect, useRef } from "preact/hooks";
import { Badge, Empty, Loaded, Section, useTitle } from "../components/bits.js";
import { ProjectChoice } from "../components/choice.js";
import { Markdown } from "../components/markdown.js";
import { subjectAddress, usePages } from "../components/notes.js";
import { Problem } from "../components/problem.js";
import { useWatched } from "../lib/api.js";
import { date, timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";
import { query, setQuery } from "../lib/url-state.js";

const PAGE = 100;
/** Words that are said with a badge, since they are what one looks for. */
const MARKED = new Set(["failed", "crashed", "diverged", "rejected", "held"]);

export default function Journal() {
  useTitle("Journal");
  const question = new URLSearchParams({ limit: String(PAGE) });
  for (const name of ["project", "kind", "subject", "since"]) {
    const value = query.value.get(name);
    if (value) question.set(name, value);
  }
  if (query.value.get("notes")) question.set("notes", "true");
  const path = `/journal?${question}`;
  return html`<div class="page">
    <div class="page-top"><h1>Journal</h1></div>
    <${Tools} />
    <${Entries} key=${path} path=${path} />
  </div>`;
}

function Tools() {
  return html`<div class="journal-tools">
    <${ProjectChoice} />
    <label>About <select value=${query.value.get("kind") ?? ""}
      onChange=${(/** @type {any} */ event) => setQuery({ kind: event.target.value }, { push: true })}>
      <option value="">everything</option><option value="run">runs</option>
      <option value="sweep">sweeps</option><option value="model">models</option>
      <option value="project">projects</option><option value="snapshot">snapshots</option>
    </select></label>
    <label><input type="checkbox" checked=${Boolean(query.value.get("notes"))}
      onChange=${(/** @type {any} */ event) => setQuery({ notes: event.target.checked }, { push: true })} />
      notes only</label>
    ${
      query.value.get("subject") &&
      html`<span>only about <b>${query.value.get("subject")}</b> <button type="button" class="quiet small"
        onClick=${() => setQuery({ subject: "", kind: "" }, { push: true })}>show all</button></span>`
    }
  </div>`;
}

/** @param {{path: string}} props */
function Entries({ path }) {
  const watched = useWatched(path, { every: 5000 });
  return html`<${Loaded} watched=${watched}>
    ${(/** @type {any} */ data) => html`<${List} path=${path} data=${data} />`}<//>`;
}

/** @param {{path: string, data: any}} props */
function List({ path, data }) {
  const { entries, older, error, busy, more } = usePages(path, data);
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (!end.current || !older || error) return undefined;
    const near = new IntersectionObserver((crossings) => crossings.some((entry) => entry.isIntersecting) && void more(), {
      rootMargin: "600px",
    });
    near.observe(end.current);
    return () => near.disconnect();
  }, [older, error]);
  if (!entries.length) {
    return data.entries.length
      ? null
      : html`<${Empty} title="Nothing has happened yet" command="halving journal note digits 'a note'">
        What runs, sweeps and models come to is listed here, beside notes:<//>`;
  }
  return html`
    ${byDay(entries).map(
      ([day, ofDay]) => html`<${Section} key=${day} title=${day}>
        <ol class="journal-day">${ofDay.map((entry) => html`<${Entry} key=${entry.id} entry=${entry} />`)}</ol>
      <//>`,
    )}
    <${Problem} text=${error} />
    ${
      older &&
      html`<p ref=${end}><button type="button" disabled=${busy} onClick=${more}>Show older entries</button></p>`
    }`;
}

/** @param {{entry: any}} props */
function Entry({ entry }) {
  const at = date(entry.at);
  const marked = MARKED.has(entry.what);
  const words = marked && entry.summary.startsWith(entry.what) ? entry.summary.slice(entry.what.length) : entry.summary;
  return html`<li class=${entry.what === "note" ? "note" : ""}>
    <time class="muted" datetime=${at?.toISOString()} title=${timeTitle(entry.at)}>${at && clockOf(at)}</time>
    <span class="what"><a href=${subjectAddress(entry)}>${entry.subject}</a> ${" "}
      ${marked && html`<${Badge} status=${entry.what} />`}${words.replace(/^; /, " ")}
      ${entry.actor && html` <span class="muted">${words ? "by " : ""}${entry.actor}</span>`}</span>
    ${entry.text && html`<${Markdown} key=${entry.text} text=${entry.text} />`}
  </li>`;
}

/**
 * Entries by the days of whoever looks.
 * @param {any[]} entries
 * @returns {[string, any[]][]}
 */
function byDay(entries) {
  /** @type {Map<string, any[]>} */
  const days = new Map();
  for (const entry of entries) {
    const day = dayOf(/** @type {Date} */ (date(entry.at)));
    days.set(day, [...(days.get(day) ?? []), entry]);
  }
  return [...days];
}

const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
const clockOf = (/** @type {Date} */ at) => `${two(at.getHours())}:${two(at.getMinutes())}`;
const dayOf = (/** @type {Date} */ at) =>
  `${at.toLocaleDateString("en", { weekday: "long" })}, ${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
