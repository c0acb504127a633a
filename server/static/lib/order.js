/** The order of values of any type. */

/** @param {unknown} value @returns {value is number | bigint} */
const isNumber = (value) => typeof value === "number" || typeof value === "bigint";

/** Numbers by size and before all else, which is by its text. @param {unknown} left @param {unknown} right */
export function compared(left, right) {
  if (isNumber(left) && isNumber(right)) return Number(left > right) - Number(left < right);
  if (isNumber(left) || isNumber(right)) return isNumber(left) ? -1 : 1;
  return String(left).localeCompare(String(right), undefined, { numeric: true });
}
