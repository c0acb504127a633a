/**
 * A filter as text: its condition, its order and its limit. Words and quotes are what
 * sdk/halving/query/run_filter_tokens.py has.
 */

const WORD_LETTER = String.raw`[\p{L}\p{N}_\-/.@:+]`;
/** A text, a name in quotes, a word, or a sign; a quote that is still open goes to the end. */
const TOKEN = new RegExp(
  String.raw`'(?:[^']|'')*'?|(?:${WORD_LETTER}*\.)?"(?:[^"]|"")*"?|${WORD_LETTER}+|\S`,
  "gu",
);

/** @typedef {{text: string, index: number}} Token */

/** @param {string} text @returns {Token[]} */
const tokensOf = (text) => [...text.matchAll(TOKEN)].map((match) => ({ text: match[0], index: match.index }));

/** @param {Token | undefined} token @param {string} keyword */
const is = (token, keyword) => token?.text.toLowerCase() === keyword;

/**
 * @param {string} filter
 * @returns {{condition: string, order: string, limit: string}} as they stand there, with their keywords; ""
 *   for what is left out
 */
export function partsOf(filter) {
  const tokens = tokensOf(filter);
  const order = tokens.findIndex((token, index) => is(token, "order") && is(tokens[index + 1], "by"));
  const limit = tokens.findIndex((token, index) => index > order && is(token, "limit"));
  const limitAt = tokens[limit]?.index ?? filter.length;
  const orderAt = tokens[order]?.index ?? limitAt;
  return {
    condition: filter.slice(0, orderAt).trim(),
    order: filter.slice(orderAt, limitAt).trim(),
    limit: filter.slice(limitAt).trim(),
  };
}

/**
 * A filter with further conditions, before its order and limit.
 * @param {string} filter
 * @param {string[]} conditions
 */
export function narrowed(filter, conditions) {
  const { condition, order, limit } = partsOf(filter);
  const first = tokensOf(condition).some((token) => is(token, "or")) ? `(${condition})` : condition;
  return joined([[first, ...conditions].filter(Boolean).join(" and "), order, limit]);
}

/**
 * How a filter orders: the first of its fields, and whether downwards.
 * @param {string} filter
 */
export function orderOf(filter) {
  const first = fieldsOf(partsOf(filter).order.replace(/^order\s+by/i, ""))[0] ?? "";
  const parts = /^(.*?)(?:\s+(asc|desc))?$/is.exec(first);
  return { field: parts?.[1] ?? "", down: parts?.[2]?.toLowerCase() === "desc" };
}

/**
 * A filter ordered by a field: upwards, then downwards, then not at all.
 * @param {string} filter
 * @param {string} field as a filter names it
 */
export function orderedBy(filter, field) {
  const { condition, limit } = partsOf(filter);
  const now = orderOf(filter);
  let next = `order by ${field}`;
  if (now.field === field) next = now.down ? "" : `order by ${field} desc`;
  return joined([condition, next, limit]);
}

/**
 * Fields with commas between: `params.lr,metrics."top 1,5"` is two.
 * @param {string} text
 */
export function fieldsOf(text) {
  const commas = tokensOf(text).filter((token) => token.text === ",");
  const starts = [0, ...commas.map((comma) => comma.index + 1)];
  return starts.map((start, index) => text.slice(start, commas[index]?.index).trim()).filter(Boolean);
}

/** @param {string[]} parts */
const joined = (parts) => parts.filter(Boolean).join(" ");
