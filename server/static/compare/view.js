/** What Compare shows, all of it in the URL: whoever opens the link sees the same. */
import { computed } from "@preact/signals";
import { query, setQuery } from "../lib/url-state.js";
import { axisOf, TOP, topOf } from "./questions.js";

export const TABS = /** @type {const} */ (["curves", "parameters", "system", "media", "diff"]);

/** @typedef {typeof TABS[number]} Tab */
/** @typedef {import("./questions.js").Axis} Axis */

/** @param {string} name @param {string} [otherwise] */
const text = (name, otherwise = "") => computed(() => query.value.get(name) ?? otherwise);
/** A list as a signal that only changes when its content does. @param {string} name */
const list = (name) => {
  const joined = computed(() => query.value.get(name) ?? "");
  return computed(() => (joined.value ? joined.value.split(",") : []));
};
/** @param {string} name */
const flag = (name) => computed(() => query.value.get(name) === "1");

export const filter = text("filter");
export const columns = list("columns");
export const group = text("group");
export const metricSearch = text("metrics");
/** Ids shown and hidden against the rule of the first `top`. */
export const shownIds = list("show");
export const hiddenIds = list("hide");
export const logX = flag("logx");
export const logY = flag("logy");

export const tab = computed(() => {
  const asked = query.value.get("tab") ?? "";
  return TABS.find((each) => each === asked) ?? "curves";
});
export const axis = computed(() => axisOf(query.value.get("x")));
export const top = computed(() => topOf(query.value.get("top")));
export const smoothing = computed(() => {
  const asked = Number(query.value.get("smooth") ?? 0);
  return asked > 0 && asked < 1 ? asked : 0;
});
export const band = computed(() => query.value.get("band") !== "0");

const zoomText = text("zoom");
/** The window of x that is shown, null for all. */
export const zoom = computed(() => {
  const [low, high] = zoomText.value.split("_").map(Number);
  return low !== undefined && high !== undefined && low < high ? { low, high } : null;
});

/** @param {{low: number, high: number} | null} window */
export const setZoom = (window) => setQuery({ zoom: window ? `${window.low}_${window.high}` : null });

/** @param {Axis} value */
export const setAxis = (value) => setQuery({ x: value === "step" ? null : value, zoom: null });

/** @param {string} value */
export const setFilter = (value) => setQuery({ filter: value.trim(), show: null, hide: null }, { push: true });

/** @param {number} value */
export const setTop = (value) => setQuery({ top: value === TOP ? null : value, show: null, hide: null });

/**
 * Show a run or hide it, as an exception where the rule says otherwise.
 * @param {string} id
 * @param {boolean} shown
 * @param {boolean} byRule whether it is among the first `top`
 */
export function setShown(id, shown, byRule) {
  const show = shownIds.peek().filter((each) => each !== id);
  const hide = hiddenIds.peek().filter((each) => each !== id);
  if (shown && !byRule) show.push(id);
  if (!shown && byRule) hide.push(id);
  setQuery({ show: show.join(","), hide: hide.join(",") });
}

/** @param {string} id */
export const showOnly = (id) => setQuery({ top: 0, show: id, hide: null });

const ORDER = /\border\s+by\s+((?:(?!\blimit\s+\d).)*)/i;

/** How the filter orders: the first of its fields, and whether downwards. */
export const order = computed(() => {
  const found = ORDER.exec(filter.value)?.[1]?.split(",")[0]?.trim() ?? "";
  const parts = /^(.*?)(?:\s+(asc|desc))?$/i.exec(found);
  return { field: parts?.[1] ?? "", down: parts?.[2]?.toLowerCase() === "desc" };
});

/**
 * Order by a field: upwards, then downwards, then as before.
 * @param {string} field as a filter names it
 */
export function orderBy(field) {
  const now = order.peek();
  const next = now.field !== field ? `order by ${field} ` : now.down ? "" : `order by ${field} desc `;
  const old = filter.peek();
  const limit = /\blimit\s+\d+\s*$/i.exec(old)?.[0] ?? "";
  const rest = old.slice(0, old.length - limit.length).replace(ORDER, "").trim();
  setQuery({ filter: [rest, next.trim(), limit.trim()].filter(Boolean).join(" ") });
}

const ENDING = /\s*\b(order\s+by|limit)\b(?:[^'"]|'[^']*'|"[^"]*")*$/i;

/**
 * A filter with further conditions, before its order and limit.
 * @param {string} filter
 * @param {string[]} words
 */
export function narrowed(filter, words) {
  const ending = ENDING.exec(filter)?.[0] ?? "";
  const condition = filter.slice(0, filter.length - ending.length).trim();
  const first = /\bor\b/i.test(condition) ? `(${condition})` : condition;
  return [[first, ...words].filter(Boolean).join(" and "), ending.trim()].filter(Boolean).join(" ");
}
