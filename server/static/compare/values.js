/**
 * The values that runs have of a field, to complete a filter: asked for when somebody writes the field, and
 * then kept for a while.
 */
import { signal } from "@preact/signals";
import { ApiError, get } from "../lib/api.js";

const MAX_VALUES = 200; // those that most runs have
const KEPT_MS = 30_000;

/** @type {Map<string, {readAt: number, values: import("@preact/signals").Signal<string[]>}>} */
const kept = new Map();

/** A field whose values are offered, what compares it, and the value that was begun. */
const BEGUN =
  /(?:^|[^\w\-/.@:+"])((?:sweep|dataset|snapshot|project|model|stage)|tags\.(?:[\w\-/.@:+]+|"(?:[^"]|"")*"))\s*(?:!?=|\bin\s*\((?:[^()]*,)?)\s*('(?:[^']|'')*|[\w\-/.@:+]*)$/i;

/**
 * The values that may complete the end of a filter; those that begin with the typed text come first.
 * @param {string} before the text before the caret
 * @returns {{word: string, completions: {text: string, kind: string}[]} | null} null where no value of such a
 *   field is written
 */
export function valuesFor(before) {
  const [, field, word = ""] = BEGUN.exec(before) ?? [];
  if (!field) return null;
  const begun = word.replace(/^'/, "").replaceAll("''", "'").toLowerCase();
  const places = valuesOf(field).map((value) => ({ value, index: value.toLowerCase().indexOf(begun) }));
  const matching = places
    .filter(({ value, index }) => index >= 0 && value.toLowerCase() !== begun)
    .sort((left, right) => Number(left.index > 0) - Number(right.index > 0));
  return { word, completions: matching.map(({ value }) => ({ text: literal(value), kind: field })) };
}

/** @param {string} field */
function valuesOf(field) {
  const cached = kept.get(field);
  if (cached && Date.now() - cached.readAt < KEPT_MS) return cached.values.value;
  const values = cached?.values ?? signal(/** @type {string[]} */ ([]));
  kept.set(field, { readAt: Date.now(), values });
  void ask(field, values);
  return values.value;
}

/** @param {string} field @param {import("@preact/signals").Signal<string[]>} values */
async function ask(field, values) {
  try {
    const answer = await get(`/runs/groups?${new URLSearchParams({ by: field, limit: String(MAX_VALUES) })}`);
    values.value = answer.groups
      .flatMap((/** @type {{key: object}} */ group) => Object.values(group.key))
      .filter((/** @type {unknown} */ value) => typeof value === "string" && value);
  } catch (failure) {
    if (!(failure instanceof ApiError)) throw failure;
    kept.delete(field); // nothing is completed now; the next letter asks again
  }
}

const WORDS = new Set([
  "and",
  "or",
  "not",
  "in",
  "like",
  "is",
  "null",
  "between",
  "order",
  "by",
  "limit",
  "asc",
  "desc",
  "true",
  "false",
  "nan",
  "inf",
  "infinity",
]);

/** A text as a filter has it. @param {string} value */
const literal = (value) =>
  /^[a-z][\w\-/.@:+]*$/i.test(value) && !WORDS.has(value.toLowerCase())
    ? value
    : `'${value.replaceAll("'", "''")}'`;
