/** JSON whose whole numbers stay exact. Those that a double cannot hold, such as ids, are BigInts here. */

// Parsing by a function takes some times longer, and most answers need none.
const MAYBE_LONG = /(?:^|[[,:\s-])\d{16}/;

/**
 * What a JSON text says.
 * @param {string} text
 * @returns {any}
 * @throws {SyntaxError}
 */
export const parsed = (text) =>
  MAYBE_LONG.test(text) ? JSON.parse(text, /** @type {any} */ (exact)) : JSON.parse(text);

/**
 * @param {string} key a step is a place on an axis, with which is calculated: it stays a double
 * @param {unknown} value
 * @param {{source?: string}} [context] of browsers before 2025 nothing
 */
function exact(key, value, context) {
  if (typeof value !== "number" || Number.isSafeInteger(value) || key === "step") return value;
  return /^-?\d+$/.test(context?.source ?? "") ? BigInt(/** @type {string} */ (context?.source)) : value;
}

// JSON.stringify refuses a BigInt that does not say what it is there: its digits.
/** @type {any} */ (BigInt.prototype).toJSON = function () {
  return /** @type {any} */ (JSON).rawJSON(String(this));
};
