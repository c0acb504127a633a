/** An axis of runs' values: numbers, evenly or by their logarithm, or the few texts that there are. */
import { axisNumber, evenSplits, logSplits } from "./ticks.js";

const LOG_FROM = 50;
export const MAX_TEXTS = 40;

/**
 * @typedef {object} Axis
 * @property {string} name as a filter names it
 * @property {"number" | "text"} kind
 * @property {boolean} log
 * @property {number} low of the numbers
 * @property {number} high
 * @property {string[]} texts sorted
 */

/**
 * The number that a value of the API is; NaN for what is none.
 * @param {unknown} value
 */
export const numberOf = (value) =>
  typeof value === "number" || typeof value === "bigint" ? Number(value) : Number.NaN;

/**
 * The axis that fits values: of numbers that spread over more than a decade or two, by their logarithm.
 * @param {string} name
 * @param {readonly unknown[]} values
 * @returns {Axis}
 */
export function axisOf(name, values) {
  let [low, high, lowestPositive, numbers, others] = [Infinity, -Infinity, Infinity, 0, 0];
  /** @type {Set<string>} */
  const texts = new Set();
  for (const value of values) {
    if (value === null || value === undefined) continue;
    const number = numberOf(value);
    if (Number.isFinite(number)) {
      numbers += 1;
      low = Math.min(low, number);
      high = Math.max(high, number);
      lowestPositive = Math.min(lowestPositive, number);
    } else if (!NOT_FINITE.has(String(value))) others += 1;
    texts.add(String(value));
  }
  const kind = others || !numbers ? "text" : "number";
  const sorted =
    kind === "text"
      ? [...texts].sort((left, right) => left.localeCompare(right, "en", { numeric: true }))
      : [];
  return {
    name,
    kind,
    log: kind === "number" && lowestPositive > 0 && high / lowestPositive >= LOG_FROM,
    low,
    high,
    texts: sorted,
  };
}

const NOT_FINITE = new Set(["NaN", "Infinity", "-Infinity"]);

/**
 * Where a value lies, 0 (low) to 1 (high); null for what the axis cannot show.
 * @param {Axis} axis
 * @param {unknown} value
 * @returns {number | null}
 */
export function shareOf(axis, value) {
  if (value === null || value === undefined) return null;
  if (axis.kind === "text") {
    const index = axis.texts.indexOf(String(value));
    if (index < 0) return null;
    return axis.texts.length === 1 ? 0.5 : index / (axis.texts.length - 1);
  }
  const number = numberOf(value);
  if (!Number.isFinite(number)) return null;
  if (axis.low === axis.high) return 0.5;
  if (axis.log) return Math.log(number / axis.low) / Math.log(axis.high / axis.low);
  return (number - axis.low) / (axis.high - axis.low);
}

/**
 * The number at a share of the axis.
 * @param {{low: number, high: number, log: boolean}} axis
 * @param {number} share
 */
export function valueAt(axis, share) {
  return axis.log ? axis.low * (axis.high / axis.low) ** share : axis.low + share * (axis.high - axis.low);
}

/**
 * What to write beside an axis, and where.
 * @param {Axis} axis
 * @param {number} limit
 * @returns {{share: number, text: string}[]}
 */
export function ticksOf(axis, limit) {
  if (axis.kind === "text") {
    const stride = Math.ceil(axis.texts.length / Math.max(1, limit));
    return axis.texts
      .map((text) => ({ share: shareOf(axis, text) ?? 0, text }))
      .filter((_, index) => index % stride === 0);
  }
  if (!Number.isFinite(axis.low)) return [];
  if (axis.low === axis.high) return [{ share: 0.5, text: axisNumber(axis.low, 0) }];
  const splits = axis.log ? logSplits(axis.low, axis.high, limit) : evenSplits(axis.low, axis.high, limit);
  const step = axis.log || splits.length < 2 ? 0 : (splits[1] ?? 0) - (splits[0] ?? 0);
  return splits.map((value) => ({ share: shareOf(axis, value) ?? 0, text: axisNumber(value, step) }));
}
