/** Diff: what is different between runs; of their code the changes over the commit. */
import { useComputed } from "@preact/signals";
import { Problem } from "../components/problem.js";
import { trouble, useWatched } from "../lib/api.js";
import { counted, display } from "../lib/format.js";
import { html } from "../lib/html.js";
import { queryValue, setQuery } from "../lib/url-state.js";
import { Swatch } from "./run-line.js";

export const MAX_COMPARED = 10;
const MAX_PATCH_LINES = 3000;

/** @typedef {{differs: boolean, values: unknown[]}} Row */
/** @typedef {Record<string, Row>} Section */

/** Rows of the environment and of the code that stand in sections of their own. */
const DATA = new Set(["dataset", "snapshot"]);
const SEEDS = new Set(["seed", "deterministic", "python_hash_seed"]);
const all = queryValue("all");

/**
 * @param {{runs: string[]}} props runs: ids, of which the first ten are compared
 */
export function Diff({ runs }) {
  const compared = runs.slice(0, MAX_COMPARED);
  if (compared.length < 2)
    return html`<p class="nothing">Show at least two runs to see what differs between
    them.</p>`;
  return html`<${Compared} key=${compared.join()} runs=${compared} more=${runs.length - compared.length} />`;
}

/** @param {{runs: string[], more: number}} props */
function Compared({ runs, more }) {
  const watched = useWatched(`/runs/diff?${new URLSearchParams(runs.map((run) => ["run", run]))}`, {
    every: 0,
  });
  const whole = useComputed(() => all.value === "1");
  const diff = watched.data.value;
  if (!diff)
    return html`<div class="tab-body" aria-busy=${!watched.error.value}>
    <${Problem} text=${trouble(watched)} /></div>`;
  const sections = sectionsOf(diff);
  const equal = sections.flatMap(([, rows]) => Object.values(rows)).filter((row) => !row.differs).length;
  return html`
    <div class="tab-body diff" tabindex="0" role="region" aria-label="Differences">
      <div class="tab-bar">
        <label>
          <input type="checkbox"
            checked=${!whole.value} onChange=${() =>
              setQuery({ all: whole.value ? null : "1" })} /> Differences only</label>
        <span class="muted">
          ${counted(runs.length, "run")} compared${
            more > 0 ? `, the first ${runs.length} of ${runs.length + more} shown` : ""
          }; ${counted(equal, "value is", "values are")} equal</span>
      </div>
      <div class="diff-scroll">
        <table class="diff-table">
          <thead>
            <tr><th scope="col"><span class="sr-only">Name</span></th>
              ${runs.map((run) => html`<th scope="col" key=${run}><${RunName} run=${run} /></th>`)}</tr>
              </thead>
          ${sections.map(
            ([name, rows]) =>
              html`<${Part} key=${name} name=${name} rows=${rows} runs=${runs} whole=${whole.value} />`,
          )}
        </table>
      </div>
      <${Patches} patches=${diff.patches} runs=${runs} whole=${whole.value} />
    </div>
  `;
}

/** @param {{run: string}} props */
export function RunName({ run }) {
  return html`<a class="run-tag" href=${`/runs/${run}`} title=${run}><${Swatch} id=${run} />
    ${run.slice(run.indexOf("/") + 1)}</a>`;
}

/**
 * What the server gives, as people look for it: data and seeds by themselves.
 * @param {Record<string, any>} diff
 * @returns {[string, Section][]}
 */
export function sectionsOf(diff) {
  /** @param {Section} rows @param {(name: string) => boolean} keep @returns {Section} */
  const only = (rows, keep) => Object.fromEntries(Object.entries(rows).filter(([name]) => keep(name)));
  const { params, code, environment, packages, metrics } = diff;
  return [
    ["Params", params],
    ["Metrics, last values", metrics],
    ["Dataset", only(code, (name) => DATA.has(name))],
    ["Code", only(code, (name) => !DATA.has(name))],
    ["Seeds", only(environment, (name) => SEEDS.has(name))],
    ["Hardware and environment", only(environment, (name) => !SEEDS.has(name))],
    ["Packages", packages],
  ];
}

/** @param {{name: string, rows: Section, runs: string[], whole: boolean}} props */
function Part({ name, rows, runs, whole }) {
  const visible = Object.entries(rows).filter(([, row]) => whole || row.differs);
  const equal = Object.keys(rows).length - visible.length;
  if (!visible.length && !whole)
    return html`<tbody>
    <tr class="diff-part">
      <th scope="colgroup" colspan=${runs.length + 1}>
        ${name} <span class="muted">${equal ? `${counted(equal, "value")}, all equal` : "none known"}</span>
        </th></tr></tbody>`;
  return html`<tbody>
    <tr class="diff-part">
      <th scope="colgroup" colspan=${runs.length + 1}>${name}
        ${equal > 0 && html` <span class="muted">and ${equal} equal</span>`}</th></tr>
    ${visible.map(
      ([key, row]) => html`<tr key=${key} class=${row.differs ? "differs" : "same"}>
        <th scope="row" title=${key}>${key}</th>
        ${row.values.map(
          (value, index) =>
            html`<td key=${runs[index]} title=${display(value)} class=${isOdd(row, value) ? "other" : ""}>
              ${display(value)}</td>`,
        )}
      </tr>`,
    )}
  </tbody>`;
}

/**
 * Whether a value differs from the most common one; where all differ, none is odd.
 * @param {Row} row
 * @param {unknown} value
 */
function isOdd(row, value) {
  if (!row.differs) return false;
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const other of row.values)
    counts.set(JSON.stringify(other), (counts.get(JSON.stringify(other)) ?? 0) + 1);
  const highest = Math.max(...counts.values());
  if (highest === 1) return row.values.length === 2 && value !== row.values[0];
  const usual = row.values.find((other) => counts.get(JSON.stringify(other)) === highest);
  return JSON.stringify(value) !== JSON.stringify(usual);
}

/**
 * Each distinct patch once, with the runs that have it.
 * @param {{patches: Record<string, string | null>, runs: string[], whole: boolean}} props
 */
function Patches({ patches, runs, whole }) {
  /** @type {Map<string, string[]>} */
  const by = new Map();
  for (const run of runs) {
    const patch = patches[run];
    if (patch) by.set(patch, [...(by.get(patch) ?? []), run]);
  }
  const shared = [...by.values()].some((ids) => ids.length === runs.length);
  if (!by.size || (shared && !whole)) return null;
  return html`<section class="patches" aria-label="Code changed over the commit">
    <h2>Code changed over the commit</h2>
    ${[...by].map(
      ([patch, having]) => html`<details key=${having[0]} open=${by.size <= 3}>
      <summary>
        ${having.map((run) => html`<${RunName} run=${run} /> `)} <span class="muted">${changesOf(patch)}
        </span></summary>
      <${Patch} text=${patch} />
    </details>`,
    )}
  </section>`;
}

/** @param {string} patch */
function changesOf(patch) {
  const lines = patch.split("\n");
  const count = (/** @type {RegExp} */ pattern) => lines.filter((line) => pattern.test(line)).length;
  return `${counted(count(/^diff --git /), "file")}, +${count(/^\+(?!\+\+)/)} −${count(/^-(?!--)/)}`;
}

/** @param {{text: string}} props */
function Patch({ text }) {
  const lines = text.split("\n");
  return html`<pre class="patch" tabindex="0">
    ${lines
      .slice(0, MAX_PATCH_LINES)
      .map((line, index) => html`<span key=${index} class=${kindOf(line)}>${line}\n</span>`)}
        ${lines.length > MAX_PATCH_LINES ? `… ${lines.length - MAX_PATCH_LINES} more lines` : ""}</pre>`;
}

/** @param {string} line */
function kindOf(line) {
  if (/^(diff |index |\+\+\+|---)/.test(line)) return "file";
  if (line.startsWith("@@")) return "place";
  return { "+": "added", "-": "removed" }[line.charAt(0)] ?? "";
}
