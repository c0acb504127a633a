/** A panel's curves as a table: what is read without seeing the chart. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { lastOf, summaryOf } from "../charts/curves.js";
import { get } from "../lib/api.js";
import { clock, duration, number } from "../lib/format.js";
import { html } from "../lib/html.js";
import { labelOf } from "./groups.js";
import { quoted } from "./names.js";
import { isLive } from "./runs.js";
import { measured } from "./units.js";

/** @typedef {import("../charts/curves.js").Curve} Curve */
/** @typedef {"step" | "time" | "relative"} Axis */

const MAX_RUNS = 100; // runs of a question: their ids have to fit into a URL

/**
 * A place on the x axis in words.
 * @param {Axis} axis
 * @param {number} x
 */
export function placeText(axis, x) {
  if (axis === "step") return `step ${number(x)}`;
  return axis === "time" ? clock(x) : duration(x);
}

/**
 * @param {{name: string, curves: Curve[], axis: Axis, window: {low: number, high: number} | null, onPoint:
 *   (run: string) => void}} props
 */
export function CurveTable({ name, curves, axis, window, onPoint }) {
  // While a run trains, its curve knows more than the index does.
  const ended = curves
    .filter((curve) => lastOf(curve).bucket && !isLive(curve.run))
    .map((curve) => curve.run);
  const indexed = useLast(name, ended);
  const groups = curves.some((curve) => curve.members);
  return html`
    <div class="curve-table" tabindex="0" role="region" aria-label=${`${name} as a table`}>
      ${
        window &&
        html`<p class="muted">Min, max and points are those
          from ${placeText(axis, window.low)} to ${placeText(axis, window.high)}; last is the whole run's.
            </p>`
      }
      <table>
        <thead>
          <tr><th scope="col">${groups ? "Group" : "Run"}</th><th scope="col">Last</th><th scope="col">At</th>
            <th scope="col">Min</th><th scope="col">Max</th><th scope="col">${groups ? "Runs" : "Points"}</th>
            </tr></thead>
        <tbody>
          ${curves.map((curve) => {
            const summary = summaryOf(curve, window);
            const last = lastOf(curve);
            /** @type {unknown} */
            let exact = last.bucket ? undefined : last.value;
            if (last.bucket && !isLive(curve.run)) exact = indexed.get(curve.run);
            return html`<tr onMouseEnter=${() => onPoint(curve.run)}>
              <th scope="row">${labelOf(curve.run)}</th>
              <td>${exact === undefined ? `≈ ${measured(name, last.value)}` : measured(name, exact)}</td>
              <td>${last.bucket ? "from " : ""}${placeText(axis, last.x)}</td>
              <td>${measured(name, summary.min)}</td><td>${measured(name, summary.max)}</td>
              <td>${curve.members ?? `${summary.exact ? "" : "≈ "}${summary.points}`}</td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>
  `;
}

/**
 * The last values of runs as the index has them; of a bucketed curve the page only knows the last bucket's
 * mean.
 * @param {string} name of the metric
 * @param {string[]} runs
 * @returns {ReadonlyMap<string, unknown>}
 */
function useLast(name, runs) {
  const lastValues = useSignal(/** @type {ReadonlyMap<string, unknown>} */ (new Map()));
  useEffect(() => {
    const stop = new AbortController();
    void (async () => {
      for (let from = 0; from < runs.length; from += MAX_RUNS) {
        const ids = runs
          .slice(from, from + MAX_RUNS)
          .map((id) => `'${id.slice(id.indexOf("/") + 1).replaceAll("'", "''")}'`);
        const query = new URLSearchParams({
          limit: "1000",
          columns: `metrics.${quoted(name)}`,
          filter: `run in (${ids.join(", ")})`,
        });
        const answer = await get(`/runs?${query}`, { signal: stop.signal });
        const values = answer.runs.map((/** @type {any} */ run) => [run.id, Object.values(run.values)[0]]);
        lastValues.value = new Map([
          ...lastValues.peek(),
          ...values.filter((/** @type {unknown[]} */ [, value]) => value !== undefined),
        ]);
      }
    })().catch(() => {}); // then the table says "≈"
    return () => stop.abort();
  }, [name, runs.join()]);
  return lastValues.value;
}
