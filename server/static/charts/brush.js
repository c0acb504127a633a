/**
 * A marked part of an axis: shares of the axis where it is drawn, values where it is kept, and a condition of
 * a filter.
 */
import { numberOf, shareOf, valueAt } from "./axis.js";

/**
 * @typedef {import("./axis.js").Axis} Axis
 * @typedef {{low: number, high: number}} Brush shares of an axis
 * @typedef {{low: number, high: number} | {low: string, high: string}} Range values
 */

/**
 * The values that a brush goes from and to: numbers as precise as can be seen, or the first and the last
 * text; null where none is within.
 * @param {Axis} axis
 * @param {Brush} brush
 * @returns {Range | null}
 */
export function rangeOf(axis, brush) {
  if (axis.kind === "text") {
    const inside = axis.texts.filter((text) => isWithin(axis, brush, text));
    const [low, high] = [inside[0], inside[inside.length - 1]];
    return low === undefined || high === undefined ? null : { low, high };
  }
  const magnitude = axis.log
    ? 1
    : Math.max(Math.abs(axis.low), Math.abs(axis.high)) / (axis.high - axis.low || 1);
  const digits = Math.min(17, 4 + Math.max(0, Math.ceil(Math.log10(magnitude || 1))));
  const valueOf = (/** @type {number} */ share) => Number(valueAt(axis, share).toPrecision(digits));
  return {
    low: brush.low <= 0 ? axis.low : valueOf(brush.low),
    high: brush.high >= 1 ? axis.high : valueOf(brush.high),
  };
}

/**
 * Where a range lies on an axis, which it may leave at both ends; null where the axis has no such values.
 * @param {Axis} axis
 * @param {Range} range
 * @returns {Brush | null}
 */
export function brushOf(axis, { low, high }) {
  if (axis.kind === "text") {
    const [first, last] = [shareOf(axis, low), shareOf(axis, high)];
    if (typeof low !== "string" || first === null || last === null || first > last) return null;
    const margin = 0.4 / Math.max(1, axis.texts.length - 1);
    return { low: first - margin, high: last + margin };
  }
  if (typeof low !== "number" || typeof high !== "number") return null;
  if (axis.low === axis.high)
    return low <= axis.low && axis.low <= high ? { low: 0, high: 1 } : { low: -1, high: -1 };
  const share = (/** @type {number} */ value) =>
    axis.log && value <= 0 ? -Infinity : (shareOf(axis, value) ?? 0);
  return { low: share(low), high: share(high) };
}

/** A brush as far as its axis goes. @param {Brush} brush @returns {Brush} */
export const onAxis = ({ low, high }) => ({
  low: Math.max(0, Math.min(1, low)),
  high: Math.max(0, Math.min(1, high)),
});

/**
 * What a brush says in a filter's words, such as `params.lr between 0.001 and 0.01`: it chooses of the values
 * those that are within.
 * @param {Axis} axis
 * @param {Brush} brush
 * @param {readonly unknown[]} values of the runs, on this axis
 */
export function filterOf(axis, brush, values) {
  const inside = values.filter((value) => isWithin(axis, brush, value));
  if (axis.kind === "text") return `${axis.name} in (${[...new Set(inside.map(literalOf))].join(", ")})`;
  const numbers = inside.map(Number);
  if (!numbers.length)
    return `${axis.name} between ${valueAt(axis, brush.low)} and ${valueAt(axis, brush.high)}`;
  const outside = values
    .filter((value) => Number.isFinite(numberOf(value)) && !isWithin(axis, brush, value))
    .map(Number);
  const [lowest, highest] = [
    numbers.reduce((result, number) => Math.min(result, number)),
    numbers.reduce((result, number) => Math.max(result, number)),
  ];
  const low = shortest(
    valueAt(axis, brush.low),
    lowest,
    (bound) => bound <= lowest && !outside.some((value) => value < lowest && value >= bound),
  );
  const high = shortest(
    valueAt(axis, brush.high),
    highest,
    (bound) => bound >= highest && !outside.some((value) => value > highest && value <= bound),
  );
  return `${axis.name} between ${low} and ${high}`;
}

/** @param {Axis} axis @param {Brush} brush @param {unknown} value */
export function isWithin(axis, brush, value) {
  const share = shareOf(axis, value);
  return share !== null && share >= brush.low - 1e-9 && share <= brush.high + 1e-9;
}

/**
 * A bound of few digits that parts the runs as the brush does.
 * @param {number} bound where the brush ends
 * @param {number} last the last value within, which always parts them
 * @param {(bound: number) => boolean} parts
 */
function shortest(bound, last, parts) {
  for (const value of [bound, last]) {
    for (let digits = 3; digits < 17; digits += 1) {
      const rounded = Number(value.toPrecision(digits));
      if (parts(rounded)) return rounded;
    }
  }
  return last;
}

/**
 * A value as a filter writes it. JSON has no NaN and no infinities, so the API writes them as texts.
 * @param {unknown} value
 */
const literalOf = (value) =>
  typeof value !== "string" || ["NaN", "Infinity", "-Infinity"].includes(value)
    ? String(value)
    : `'${value.replaceAll("'", "''")}'`;
