/** Units of what the machine measures, by the metric's name; other metrics have none that we know. */
import { number, size } from "../lib/format.js";

/** @type {[RegExp, string][]} */
const UNITS = [
  [/^system\/(disk\/(read|write)|network\/(sent|received))$/, "bytes/s"],
  [/^system\/(memory\/(process|used)|disk\/used|gpu\.\d+\/memory_used)$/, "bytes"],
  [/^system\/.*(percent|utilization)$/, "%"],
  [/^system\/.*\/temperature$/, "°C"],
  [/^system\/.*\/power$/, "W"],
  [/^system\/throughput$/, "samples/s"],
];

/** "" for a metric without one. @param {string} name */
export const unitOf = (name) => UNITS.find(([names]) => names.test(name))?.[1] ?? "";

/**
 * A metric's value with its unit.
 * @param {string} name
 * @param {unknown} value
 * @param {number} [digits]
 */
export function measured(name, value, digits = 5) {
  const unit = unitOf(name);
  if (!unit || typeof value !== "number" || !Number.isFinite(value)) return number(value, digits);
  if (unit.startsWith("bytes")) return size(value) + unit.slice("bytes".length);
  return `${number(value, digits)} ${unit}`;
}
