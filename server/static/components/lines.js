/** A small chart that needs no library: the results of a search over time. */
import { number } from "../lib/format.js";
import { html } from "../lib/html.js";

/**
 * Scale numbers so that the smallest is 0 and the largest 1.
 * @param {readonly number[]} values finite
 */
function scale(values) {
  const low = Math.min(...values);
  const span = Math.max(...values) - low || 1;
  return (/** @type {number} */ value) => (value - low) / span;
}

/**
 * Results over time as dots, and the best so far as a line. The table of trials beside it says the same in
 * words.
 * @param {{results: {at: string, value: number, trial: number}[], direction: string, metric: string}} props
 *   in order of time
 */
export function BestSoFar({ results, direction, metric }) {
  const finite = results.filter((result) => Number.isFinite(result.value));
  if (finite.length < 2) return null;
  const [width, height, pad] = [560, 150, 8];
  const times = finite.map((result) => Date.parse(result.at));
  const [left, top] = [scale(times), scale(finite.map((result) => result.value))];
  const xOf = (/** @type {number} */ index) => pad + left(times[index] ?? 0) * (width - 2 * pad);
  const yOf = (/** @type {number} */ value) => height - pad - top(value) * (height - 2 * pad);
  const better = direction === "minimize" ? Math.min : Math.max;
  let best = finite[0]?.value ?? 0;
  let line = `M${xOf(0).toFixed(1)} ${yOf(best).toFixed(1)}`;
  finite.forEach((result, index) => {
    line += `H${xOf(index).toFixed(1)}`;
    best = better(best, result.value);
    line += `V${yOf(best).toFixed(1)}`;
  });
  const values = finite.map((result) => result.value);
  const extent = `from ${number(Math.min(...values))} to ${number(Math.max(...values))}`;
  const subject = `${metric} of ${finite.length} results over time`;
  const said = `${subject}, ${extent}; the best so far is ${number(best)}`;
  return html`<figure class="best">
    <div class="best-scale" aria-hidden="true"><span>${number(Math.max(...values), 4)}</span>
      <span>${number(Math.min(...values), 4)}</span></div>
    <svg viewBox="0 0 ${width} ${height}" preserveAspectRatio="none" role="img" aria-label=${said}>
      <path class="best-line" d=${line} vector-effect="non-scaling-stroke" />
      ${finite.map(
        (result, index) =>
          html`<path class="best-dot"
            d=${`M${xOf(index).toFixed(1)} ${yOf(result.value).toFixed(1)}h0`}
              vector-effect="non-scaling-stroke"><title>trial ${result.trial}: ${number(result.value)}</title>
                </path>`,
      )}
    </svg>
  </figure>`;
}
