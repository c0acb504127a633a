/**
 * Ranges by name, as the URL has them: `val/loss:0.1_0.5` of numbers, `params.optimizer:(adam)_(sgd)` of
 * texts: a browser leaves these signs as they are.
 */

const BOUND = String.raw`[-+\d.e]+|\((?:[^)]|\)\))*\)`;
const RANGE = new RegExp(`^(.+?):(${BOUND})_(${BOUND})$`, "is");

/** @typedef {{low: number, high: number} | {low: string, high: string}} Range */

/**
 * @param {string[]} texts
 * @returns {{ranges: Map<string, Range>, wrong: string[]}} by name; wrong: texts that say no range
 */
export function rangesOf(texts) {
  /** @type {Map<string, Range>} */
  const ranges = new Map();
  const wrong = [];
  for (const text of texts) {
    const [, name = "", from = "", to = ""] = RANGE.exec(text) ?? [];
    const range = rangeOf(from, to);
    if (range) ranges.set(name, range);
    else wrong.push(text);
  }
  return { ranges, wrong };
}

/** @param {string} from @param {string} to @returns {Range | null} */
function rangeOf(from, to) {
  if (!from) return null;
  const texts = [from, to].filter((bound) => bound.startsWith("(")).length;
  if (texts) return texts === 2 ? { low: textOf(from), high: textOf(to) } : null;
  const [low, high] = [Number(from), Number(to)];
  return Number.isFinite(low) && Number.isFinite(high) && low <= high ? { low, high } : null;
}

/** @param {string} literal */
const textOf = (literal) => literal.slice(1, -1).replaceAll("))", ")");

/** @param {string | number} bound */
const written = (bound) => (typeof bound === "string" ? `(${bound.replaceAll(")", "))")})` : String(bound));

/** @param {ReadonlyMap<string, Range>} ranges */
export const textsOf = (ranges) =>
  [...ranges].map(([name, { low, high }]) => `${name}:${written(low)}_${written(high)}`);
