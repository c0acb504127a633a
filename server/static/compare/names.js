/** What runs have: fields, params, metrics and tags, asked for once for all who need them. */
import { computed, effect, signal, untracked } from "@preact/signals";
import { Watched } from "../lib/api.js";
import * as runs from "./runs.js";
import { valuesFor } from "./values.js";
import * as view from "./view.js";

/** @typedef {{name: string, count: number, type: "number" | "text" | "bool" | "mixed"}} Name */
/**
 * @typedef {{fields: {name: string, type: string, about: string}[], params: Name[], metrics: Name[], tags:
 *   Name[]}} Names
 */

const EVERY_MS = 5000;
const MAX_RUNS = 100; // runs: their ids have to fit into a URL

/**
 * The names that the runs have which the filter chooses; while a new filter is answered, those of the last
 * one.
 */
export const names = signal(/** @type {Names | undefined} */ (undefined));

/**
 * The metrics that the shown runs have; null where these are all of the filter's, too many to ask, or not
 * answered yet.
 */
export const metricsOfShown = signal(/** @type {{name: string}[] | null} */ (null));

/**
 * What all runs have: a filter may be about others than it chooses now. It is only asked for when somebody
 * writes a filter.
 */
const all = signal(/** @type {Names | undefined} */ (undefined));
const allWanted = signal(false);

/** Follow what names there are while Compare is open. */
export function follow() {
  const shownFilter = computed(() => {
    const ids = runs.shownIds.value.map((id) => id.slice(id.indexOf("/") + 1));
    // All runs of the filter are shown, so they have the names that its runs have.
    const every = ids.length === runs.total.value && !view.shownIds.value.length;
    return every || !ids.length || ids.length > MAX_RUNS
      ? null
      : `run in (${ids.map((id) => `'${id.replaceAll("'", "''")}'`).join(", ")})`;
  });
  const stops = [
    effect(() => watch(view.filter.value, (listed) => (names.value = listed))),
    effect(() => {
      if (shownFilter.value === null) metricsOfShown.value = null;
      else return watch(shownFilter.value, (listed) => (metricsOfShown.value = listed.metrics));
    }),
    effect(() => {
      if (allWanted.value && view.filter.value) return watch("", (listed) => (all.value = listed));
    }),
  ];
  return () => {
    for (const stop of stops) stop();
    [names.value, metricsOfShown.value, all.value, allWanted.value] = [undefined, null, undefined, false];
  };
}

/**
 * @param {string} filter
 * @param {(completions: Names) => void} then called with each answer
 * @returns {() => void} ends it
 */
function watch(filter, then) {
  const query = new URLSearchParams({ limit: "20000" });
  if (filter) query.set("filter", filter);
  const mine = untracked(() => new Watched(`/runs/columns?${query}`, { every: EVERY_MS }));
  const stop = mine.data.subscribe((listed) => void (listed && untracked(() => then(listed))));
  return () => {
    stop();
    mine.close();
  };
}

/**
 * A name as a filter wants it: in quotes where it has more than letters, digits and `_ - / . @ : +`.
 * @param {string} name
 */
export const quoted = (name) => (/^[\w\-/.@:+]+$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

/** @param {string} kind @param {Name[]} all */
const columnsOf = (kind, all) =>
  all.map((entry) => ({ column: `${kind}s.${quoted(entry.name)}`, kind, type: entry.type }));

const fields = computed(() =>
  (names.value?.fields ?? []).map((field) => ({ column: field.name, kind: "field", type: field.type })),
);
const params = computed(() => columnsOf("param", names.value?.params ?? []));
const tags = computed(() => columnsOf("tag", names.value?.tags ?? []));

/** All that can be a column, with its kind. */
export const allColumns = computed(() => [
  ...fields.value.filter((field) => !["run", "status"].includes(field.column)),
  ...params.value,
  ...columnsOf("metric", names.value?.metrics ?? []),
  ...tags.value,
]);

const GROUPS = new Set(["sweep", "dataset", "model", "stage", "project", "commit", "seed"]);

/**
 * All that runs can be grouped by. It is on the screen at first, so it is made without the metrics, of which
 * there may be thousands.
 */
export const groupColumns = computed(() => [
  ...fields.value.filter((field) => GROUPS.has(field.column)),
  ...params.value,
  ...tags.value,
]);

/** What a filter may name, however few runs the present one chooses. */
const completed = computed(() => {
  const columns = (view.filter.value && all.value) || names.value;
  return [
    ...(columns?.fields ?? []).map((field) => ({ column: field.name, kind: "field" })),
    ...columnsOf("param", columns?.params ?? []),
    ...columnsOf("metric", columns?.metrics ?? []),
    ...columnsOf("tag", columns?.tags ?? []),
  ];
});

const KEYWORDS = [
  "and",
  "or",
  "not",
  "between",
  "in",
  "like",
  "is null",
  "is not null",
  "order by",
  "desc",
  "limit",
];
/** A word, or a name whose quote is still open. */
const WORD = /(?:params|metrics|tags)\."(?:[^"]|"")*$|[\w\-/.@:+]*$/i;
const STATUSES = ["finished", "failed", "paused", "stopped", "crashed", "running", "unfinished"];
const STATUS = /\bstatus\s*(?:!?=|in\s*\((?:[^()]*,)?)\s*(\w*)$/i;
const MAX_COMPLETIONS = 12;

/** @typedef {{text: string, kind: string}} Suggestion */

/**
 * What may follow at the end of a text: names that hold the word, those that begin with it first; of a
 * status, a sweep, a dataset or a tag its values.
 * @param {string} before the text before the caret
 * @returns {{word: string, completions: Suggestion[]}}
 */
export function suggestions(before) {
  const values = valuesFor(before);
  if (values) return { word: values.word, completions: values.completions.slice(0, MAX_COMPLETIONS) };
  const status = STATUS.exec(before)?.[1]?.toLowerCase();
  if (status !== undefined) {
    const statuses = STATUSES.filter((candidate) => candidate.startsWith(status) && candidate !== status);
    return { word: status, completions: statuses.map((text) => ({ text, kind: "status" })) };
  }
  const word = WORD.exec(before)?.[0] ?? "";
  const lower = word.toLowerCase().replaceAll('"', "");
  if (!lower) return { word, completions: [] };
  /** @type {Suggestion[][]} */
  const ranked = [[], [], []];
  const add = (/** @type {string} */ text, /** @type {string} */ kind) => {
    const low = text.toLowerCase().replaceAll('"', "");
    const index = low.indexOf(lower);
    if (index < 0 || low === lower) return;
    const bare = low.replace(/^(params|metrics|tags)\./, "");
    let rank = bare.startsWith(lower) ? 1 : 2;
    if (index === 0) rank = 0;
    if ((ranked[rank]?.length ?? MAX_COMPLETIONS) < MAX_COMPLETIONS) ranked[rank]?.push({ text, kind });
  };
  allWanted.value = true;
  for (const { column, kind } of completed.value) add(column, kind);
  for (const keyword of KEYWORDS) if (keyword.startsWith(lower)) add(keyword, "word");
  return { word, completions: ranked.flat().slice(0, MAX_COMPLETIONS) };
}
