/** What runs have: fields, params, metrics and tags, asked for once for all who need them. */
import { computed, signal } from "@preact/signals";
import { Watched } from "../lib/api.js";

/** @typedef {{name: string, count: number, type: "number" | "text" | "bool" | "mixed"}} Name */
/** @typedef {{fields: {name: string, type: string, about: string}[], params: Name[], metrics: Name[], tags: Name[]}} Names */

const EVERY_MS = 5000;
const watched = signal(/** @type {Watched | null} */ (null));

export const names = computed(() => /** @type {Names | undefined} */ (watched.value?.data.value));

/** Follow what names there are while Compare is open. */
export function follow() {
  const mine = new Watched("/runs/columns?limit=20000", { every: EVERY_MS });
  watched.value = mine;
  return () => {
    mine.close();
    watched.value = null;
  };
}

/** A name as a filter wants it: in quotes where it has more than letters, digits and `_ - / . @ : +`. @param {string} name */
export const quoted = (name) => (/^[\w\-/.@:+]+$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

/** @param {string} kind @param {Name[]} all */
const columnsOf = (kind, all) => all.map((each) => ({ column: `${kind}s.${quoted(each.name)}`, kind, type: each.type }));

const fields = computed(() => (names.value?.fields ?? []).map((each) => ({ column: each.name, kind: "field", type: each.type })));
const params = computed(() => columnsOf("param", names.value?.params ?? []));
const tags = computed(() => columnsOf("tag", names.value?.tags ?? []));

/** All that can be a column, with its kind. */
export const allColumns = computed(() => [
  ...fields.value.filter((each) => !["run", "status"].includes(each.column)),
  ...params.value,
  ...columnsOf("metric", names.value?.metrics ?? []),
  ...tags.value,
]);

const GROUPS = new Set(["sweep", "dataset", "model", "stage", "project", "commit", "seed"]);

/** All that runs can be grouped by. It is on the screen at first, so it is made without the metrics, of which there may be thousands. */
export const groupColumns = computed(() => [...fields.value.filter((each) => GROUPS.has(each.column)), ...params.value, ...tags.value]);

const KEYWORDS = ["and", "or", "not", "between", "in", "like", "is null", "is not null", "order by", "desc", "limit"];
const WORD = /[\w\-/.@:+]*$/;
const MOST = 12;

/** @typedef {{text: string, kind: string}} Suggestion */

/**
 * What may follow at the end of a text: names that hold the word, those that begin with it first.
 * @param {string} before the text before the caret
 * @returns {{word: string, found: Suggestion[]}}
 */
export function suggestions(before) {
  const word = WORD.exec(before)?.[0] ?? "";
  const lower = word.toLowerCase();
  if (!lower) return { word, found: [] };
  /** @type {Suggestion[][]} */
  const ranked = [[], [], []];
  const add = (/** @type {string} */ text, /** @type {string} */ kind) => {
    const low = text.toLowerCase();
    const at = low.indexOf(lower);
    if (at < 0 || low === lower) return;
    const bare = low.replace(/^(params|metrics|tags)\./, "");
    const rank = at === 0 ? 0 : bare.startsWith(lower) ? 1 : 2;
    if ((ranked[rank]?.length ?? MOST) < MOST) ranked[rank]?.push({ text, kind });
  };
  for (const field of names.value?.fields ?? []) add(field.name, "field");
  for (const { column, kind } of allColumns.value) if (kind !== "field") add(column, kind);
  for (const keyword of KEYWORDS) if (keyword.startsWith(lower)) add(keyword, "word");
  return { word, found: ranked.flat().slice(0, MOST) };
}
