/** All sweeps, the newest first. */
import { Badge, Empty, Loaded, Timestamp, useTitle } from "../components/bits.js";
import { SortHead, ordered } from "../components/sorting.js";
import { useWatched } from "../lib/api.js";
import { number } from "../lib/format.js";
import { html } from "../lib/html.js";
import { query, setQuery } from "../lib/url-state.js";

const FIRST = 200;
const MAX_LISTED = 1000; // that the server lists

export default function Sweeps() {
  useTitle("Sweeps");
  const limit = query.value.get("all") ? MAX_LISTED : FIRST;
  const watched = useWatched(`/hpo/studies?limit=${Math.min(MAX_LISTED, limit + 1)}`, { every: 3000 });
  return html`<div class="page"><h1>Sweeps</h1>
    <${Loaded} watched=${watched}>${(/** @type {{studies: any[]}} */ data) => list(data.studies, limit)}<//>
    </div>`;
}

/** @param {any[]} studies @param {number} limit how many are listed */
function list(studies, limit) {
  if (!studies.length) {
    return html`<${Empty} title="No sweep was launched yet" command="halving sweep sweeps/digits.yaml">
      A sweep searches for better hyperparameters and stops weak trials early. This one takes a minute:
    <//>`;
  }
  return html`<div class="scroll card flush" tabindex="0" role="region" aria-label="Sweeps">
    <table>
      <thead>
        <tr>
          <${SortHead} by="id" name="Sweep" /><${SortHead} by="status" name="Status" />
          <${SortHead} by="trials" name="Trials" /><${SortHead} by="objective" name="Objective" />
          <${SortHead} by="best" name="Best" right=${true} />
          <${SortHead} by="launched" name="Launched" right=${true} />
          <${SortHead} by="ended" name="Ended" right=${true} />
        </tr>
      </thead>
      <tbody>
        ${ordered(studies.slice(0, limit), valueOf).map(
          (study) => html`<${Line} key=${study.id} study=${study} />`,
        )}</tbody>
    </table>
  </div>
  ${
    limit < studies.length &&
    html`<p class="more">The newest ${limit} are
      listed. <button type="button" onClick=${() => setQuery({ all: "1" })}>List up to ${MAX_LISTED}</button>
        </p>`
  }
  ${
    studies.length >= MAX_LISTED &&
    html`<p class="more">The newest ${MAX_LISTED} are listed; there may be more.</p>`
  }`;
}

/** What a column has of a sweep. @param {any} study @param {string} by */
function valueOf(study, by) {
  if (by === "status") return standing(study);
  if (by === "trials")
    return Object.values(study.counts).reduce(
      (/** @type {number} */ sum, /** @type {number} */ count) => sum + count,
      0,
    );
  return study[{ launched: "created_at", ended: "finished_at" }[by] ?? by];
}

/** How far a sweep is, or why it has not begun. @param {{study: any}} props */
function HowFar({ study }) {
  const isSearching = study.status === "searching";
  if (study.waiting && !isSearching)
    return html`<span class="muted">${study.status === "canceled" ? "canceled" : study.waiting}</span>`;
  return html`<${Progress} counts=${study.counts} planned=${study.trials} searching=${isSearching} />
    ${study.waiting && html`<span class="muted">${study.waiting}</span>`}`;
}

/** @param {{study: any}} props */
function Line({ study }) {
  return html`<tr>
    <th scope="row"><a href=${`/sweeps/${study.id}`}>${study.id}</a></th>
    <td><${Badge} status=${standing(study)} /></td>
    <td><${HowFar} study=${study} /></td>
    <td>${
      study.problem
        ? html`<span class="muted" title=${study.problem}>its spec cannot be read</span>`
        : html`<span class="muted">${study.direction}</span> ${study.objective}`
    }</td>
    <td class="right strong">${number(study.best)}</td>
    <td class="right"><${Timestamp} time=${study.created_at} /></td>
    <td class="right"><${Timestamp} time=${study.finished_at} /></td>
  </tr>`;
}

/**
 * What a sweep does, as its user would say it.
 * @param {{status: string, control: string}} study
 */
export function standing({ status, control }) {
  if (status !== "searching" || control === "run") return status;
  return control === "pause" ? "paused" : "stopping";
}

/** What may be told apart in a bar, from what is done to what went wrong. */
const PARTS = ["completed", "running", "paused", "stopped", "failed"];

/**
 * How many trials are where, as a bar and in words.
 * @param {{counts: Record<string, number>, planned: number | null, searching: boolean}} props
 */
export function Progress({ counts, planned, searching }) {
  const present = PARTS.filter((part) => counts[part]);
  const total = Math.max(
    planned ?? 0,
    Object.values(counts).reduce((sum, count) => sum + count, 0),
    1,
  );
  // When the search is over, what is paused will not go on.
  const words = present
    .map((part) => `${counts[part]} ${part === "paused" && !searching ? "stopped" : part}`)
    .join(", ");
  return html`<div class="progress">
    <div class="bar" aria-hidden="true">
      ${present.map(
        (part) =>
          html`<i
            class=${`part ${part === "paused" && !searching ? "stopped" : part}`}
              style=${{ width: `${(100 * (counts[part] ?? 0)) / total}%` }} />`,
      )}</div>
    <span class="muted">${words || "none started"}${planned === null ? null : ` of ${planned}`}</span>
  </div>`;
}
