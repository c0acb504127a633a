/** Questions for curves. It imports nothing: first-curves.js asks it before the page is there. */

const POINTS = 1000;
const FEW = 100; // curves
const MAX_ROWS = 2_000_000;
const MAX_KEYS = 100;
const AXES = /** @type {const} */ (["step", "time", "relative"]);

/** How many runs are shown where the URL does not say it. */
export const TOP = 20;

/** @typedef {typeof AXES[number]} Axis */
/**
 * @typedef {{runs: string[], keys: string[], x: Axis, max_points: number, low?: number, high?: number}}
 *   Question
 */

/** The axis of a URL. @param {string | null} text @returns {Axis} */
export const axisOf = (text) => AXES.find((axis) => axis === text) ?? "step";

/** How many runs a URL shows. @param {string | null} text */
export function topOf(text) {
  const top = Number(text ?? TOP);
  return Number.isInteger(top) && top >= 0 ? Math.min(top, 1000) : TOP;
}

/**
 * @param {Axis} axis
 * @param {string[]} keys
 * @param {string[]} runs
 * @returns {Question}
 */
export const questionOf = (axis, keys, runs) => ({ runs, keys, x: axis, max_points: POINTS });

/**
 * What asks for all curves of some panels. The first panel does not wait for the others where those are much
 * to read.
 * @param {Axis} axis
 * @param {string[]} keys
 * @param {string[]} runs
 * @returns {Question[]}
 */
export function questionsOf(axis, keys, runs) {
  const size = Math.max(1, Math.min(MAX_KEYS, Math.floor(MAX_ROWS / (POINTS * runs.length))));
  const alone = keys.length > 2 && runs.length * keys.length > FEW ? 1 : 0;
  const parts = alone ? [keys.slice(0, alone)] : [];
  for (let from = alone; from < keys.length; from += size) parts.push(keys.slice(from, from + size));
  return parts.map((part) => questionOf(axis, part, runs));
}

/**
 * A question as `fetch` wants it.
 * @param {Question} question
 * @returns {{method: string, headers: Record<string, string>, body: string}}
 */
export const posted = (question) => ({
  method: "POST",
  headers: { Accept: "application/vnd.halving.curves", "Content-Type": "application/json" },
  body: JSON.stringify(question),
});
