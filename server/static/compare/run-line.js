/**
 * A run's line in the table. Scrolling draws dozens of them in a frame, so it has no more elements than it
 * needs, and no handlers.
 */
import { computed } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { colourOf, styleOf } from "../lib/colours.js";
import { ago, duration, number, display, time, timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";
import { lineOf } from "./groups.js";
import { highlighted } from "./panel.js";
import * as runs from "./runs.js";

export const HEIGHT = 30;

/**
 * Fields of every run that can be columns, with how they are shown.
 * @type {Record<string, (run: runs.Run) => string>}
 */
const FIELDS = {
  started: (run) => time(run.started),
  ended: (run) => time(run.ended),
  seconds: (run) => duration(run.seconds),
};

/** @param {runs.Run} run @param {string} column */
function cell(run, column) {
  const value = column in run ? run[column] : run.values[column];
  return (
    FIELDS[column]?.(run) ??
    (typeof value === "number" && !Number.isInteger(value) ? number(value, 4) : display(value))
  );
}

/**
 * Whatever it is given stays the same while the run does: one that stays on the screen is not rendered again.
 * @param {{index: number, run: runs.Run | undefined, columns: string[], isCurrent: boolean}} props isCurrent:
 *   whether the keys stand on it
 */
export function Line({ index, run, columns, isCurrent }) {
  const lit = useMemo(() => computed(() => run !== undefined && highlighted.value === run.id), [run?.id]);
  const style = `top:${(index + 1) * HEIGHT}px`;
  if (!run)
    return html`<div class=${`run-line waiting ${isCurrent ? "at" : ""}`} role="row"
    aria-rowindex=${index + 2} style=${style}><span role="gridcell">…</span></div>`;
  const isShown = runs.shownSet.value.has(run.id);
  return html`
    <div id=${`run-${index}`} role="row"
      aria-rowindex=${index + 2} data-run=${run.id} style=${style} aria-selected=${isShown}
      class=${`run-line ${isShown ? "" : "off"} ${isCurrent ? "at" : ""} ${lit.value ? "lit" : ""}`}>
      <span role="gridcell">
        <button class="eye" type="button" role="checkbox" tabindex="-1"
          aria-checked=${isShown} aria-label=${`Show ${run.run}`}>
        ${isShown && html`<${Swatch} id=${lineOf(run.id)} />`}</button></span>
      <span role="gridcell" class="run-name"><a href=${`/runs/${run.id}`} tabindex="-1">${run.run}</a></span>
      <span role="gridcell" class="status" data-status=${run.status}>${run.status}</span>
      ${columns.map(
        (column) => html`<span key=${column} role="gridcell" class="number">${cell(run, column)}</span>`,
      )}
    </div>
  `;
}

/**
 * The title of a part of a line: text that may be cut off there, and more of the run. It is made only where
 * the pointer is.
 * @param {Element} part
 * @param {runs.Run} run
 */
export function titleOf(part, run) {
  if (part.closest(".eye")) return runs.shownSet.peek().has(run.id) ? "Hide (x)" : "Show (x)";
  if (part.closest(".run-name")) return `${run.id}, started ${ago(run.started)} (${timeTitle(run.started)})`;
  return part.textContent ?? "";
}

/** What a run's line looks like in the charts. @param {{id: string}} props */
export function Swatch({ id }) {
  const dashes = styleOf(id)
    .dash.map((length) => length * 0.6)
    .join(" ");
  return html`<svg class="swatch" viewBox="0 0 18 10" width="18" height="10" aria-hidden="true">
    <path d="M1 5h16" stroke=${colourOf(id)} stroke-width="2.5" stroke-dasharray=${dashes} /></svg>`;
}
