/** A small chart that needs no library: the results of a search over time. */
import { number } from "../lib/format.js";
import { html } from "../lib/html.js";

/**
 * Where numbers lie between the least and the greatest, 0 to 1.
 * @param {readonly number[]} values finite
 */
function scale(values) {
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  return (/** @type {number} */ value) => (value - low) / span;
}

/**
 * Results over time as dots, and the best so far as a line. The table of trials beside it says the same in words.
 * @param {{results: {at: string, value: number, trial: number}[], direction: string, metric: string}} props in order of time
 */
export function BestSoFar({ results, direction, metric }) {
  const known = results.filter((each) => Number.isFinite(each.value));
  if (known.length < 2) return null;
  const [width, height, pad] = [560, 150, 8];
  const times = known.map((each) => Date.parse(each.at));
  const [left, top] = [scale(times), scale(known.map((each) => each.value))];
  const at = (/** @type {number} */ index) => pad + left(times[index] ?? 0) * (width - 2 * pad);
  const of = (/** @type {number} */ value) => height - pad - top(value) * (height - 2 * pad);
  const better = direction === "minimize" ? Math.min : Math.max;
  let best = known[0]?.value ?? 0;
  let line = `M${at(0).toFixed(1)} ${of(best).toFixed(1)}`;
  known.forEach((each, index) => {
    line += `H${at(index).toFixed(1)}`;
    best = better(best, each.value);
    line += `V${of(best).toFixed(1)}`;
  });
  const values = known.map((each) => each.value);
  const said = `${metric} of ${known.length} results over time, from ${number(Math.min(...values))} to ${number(Math.max(...values))}; the best so far is ${number(best)}`;
  return html`<figure class="best">
    <div class="best-scale" aria-hidden="true"><span>${number(Math.max(...values), 4)}</span><span>${number(Math.min(...values), 4)}</span></div>
    <svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${said}>
      <path class="best-line" d=${line} vector-effect="non-scaling-stroke" />
      ${known.map((each, index) => html`<path class="best-dot" d=${`M${at(index).toFixed(1)} ${of(each.value).toFixed(1)}h0`} vector-effect="non-scaling-stroke"><title>trial ${each.trial}: ${number(each.value)}</title></path>`)}
    </svg>
  </figure>`;
}
