/** What Compare shows, all of it in the URL: whoever opens the link sees the same. */
import { computed } from "@preact/signals";
import { query, setQuery } from "../lib/url-state.js";
import { fieldsOf, orderedBy, orderOf } from "./filter-text.js";
import { axisOf, TOP, topOf } from "./questions.js";
import { rangesOf, textsOf } from "./ranges.js";

export { narrowed } from "./filter-text.js";

export const TABS = /** @type {const} */ (["curves", "parameters", "system", "media", "diff"]);

/** @typedef {typeof TABS[number]} Tab */
/** @typedef {import("./questions.js").Axis} Axis */

/** @param {string} name @param {string} [otherwise] */
const text = (name, otherwise = "") => computed(() => query.value.get(name) ?? otherwise);
/**
 * A list as a signal that only changes when its content does.
 * @param {string} name
 * @param {(text: string) => string[]} split
 */
const list = (name, split) => {
  const joined = text(name);
  return computed(() => split(joined.value));
};
/** No comma is in an id. @param {string} joined */
const ids = (joined) => (joined ? joined.split(",") : []);
/** @param {string} name */
const flag = (name) => computed(() => query.value.get(name) === "1");

export const filter = text("filter");
export const columns = list("columns", fieldsOf);
export const group = text("group");
export const metricSearch = text("metrics");
/** Ids shown and hidden against the rule of the first `top`. */
export const shownIds = list("show", ids);
export const hiddenIds = list("hide", ids);
export const logX = flag("logx");
export const logY = flag("logy");

export const tab = computed(() => {
  const tabName = query.value.get("tab") ?? "";
  return TABS.find((tab) => tab === tabName) ?? "curves";
});
export const axis = computed(() => axisOf(query.value.get("x")));
/** The axis of what the machine measures, which has no steps: since each run's start, or by the clock. */
export const systemAxis = computed(() => (query.value.get("sysx") === "time" ? "time" : "relative"));
export const top = computed(() => topOf(query.value.get("top")));
export const smoothing = computed(() => {
  const share = Number(query.value.get("smooth") ?? 0);
  return share > 0 && share < 1 ? share : 0;
});
export const band = computed(() => query.value.get("band") !== "0");

const AXES = /** @type {const} */ (["step", "time", "relative"]);
const ZOOM = { step: "zoom", time: "zoom-time", relative: "zoom-relative" };
/** @param {Axis} axis */
const windowOf = (axis) => {
  const bounds = text(ZOOM[axis]);
  return computed(() => {
    const [low, high] = bounds.value.split("_").map(Number);
    return low !== undefined && high !== undefined && low < high ? { low, high } : null;
  });
};
const windows = { step: windowOf("step"), time: windowOf("time"), relative: windowOf("relative") };
/** The window of an axis that is shown, null for all. @param {Axis} axis */
export const zoomOf = (axis) => windows[axis];

/** @typedef {{low: number, high: number}} Bounds */
/** @typedef {import("./ranges.js").Range} Range */

/**
 * Ranges by name that the URL has several of, as a signal that only changes when their text does.
 * @param {string} name
 */
const ranges = (name) => {
  const joined = computed(() => JSON.stringify(query.value.getAll(name)));
  return computed(() => rangesOf(JSON.parse(joined.value)));
};
const ZOOM_Y = "zoom-y";
const MARK = "mark";
const zoomsY = ranges(ZOOM_Y);
const marksRead = ranges(MARK);

/** The window of values that a metric's panel shows, null for all. @param {string} metric */
export const zoomYOf = (metric) => computed(() => boundsOf(zoomsY.value.ranges.get(metric)));
/** @param {Range | undefined} range @returns {Bounds | null} */
const boundsOf = (range) =>
  range && typeof range.low === "number" && typeof range.high === "number" && range.low < range.high
    ? { low: range.low, high: range.high }
    : null;

/** Whether anything is zoomed. @param {Axis} axis */
export const isZoomed = (axis) => zoomOf(axis).value !== null || zoomsY.value.ranges.size > 0;

/**
 * What a panel shows: of the axis, which all panels share, and of its own values.
 * @param {Axis} axis
 * @param {Bounds | null} window
 * @param {string} metric
 * @param {Bounds | null} values
 */
export function setZoom(axis, window, metric, values) {
  const next = new Map(zoomsY.peek().ranges);
  if (values) next.set(metric, values);
  else next.delete(metric);
  setQuery({ [ZOOM[axis]]: window ? `${window.low}_${window.high}` : null, [ZOOM_Y]: textsOf(next) });
}

/** @param {Axis} axis */
export const showAll = (axis) => setQuery({ [ZOOM[axis]]: null, [ZOOM_Y]: null });

/** What is marked of params and metrics, by their names as a filter has them. */
export const marks = computed(() => marksRead.value.ranges);
/** @param {ReadonlyMap<string, Range>} next @param {{often?: boolean}} [options] */
export const setMarks = (next, options) => setQuery({ [MARK]: textsOf(next) }, options);

/** What the URL has of ranges that are none, each with the reason: they are left out. */
export const ignored = computed(() => {
  const windowsWrong = AXES.filter((axis) => query.value.get(ZOOM[axis]) && !windows[axis].value).map(
    (axis) => `${ZOOM[axis]}=${query.value.get(ZOOM[axis])}`,
  );
  const upright = [...zoomsY.value.ranges].filter(([, range]) => !boundsOf(range)).map(textsOfOne);
  return [
    ...windowsWrong.map(
      (text) => `in the address ${text} is ignored: give LOW_HIGH, two numbers, the lower one first`,
    ),
    ...[...zoomsY.value.wrong, ...upright].map(
      (text) =>
        `in the address ${ZOOM_Y}=${text} is ignored: give METRIC:LOW_HIGH, two numbers, the lower one first`,
    ),
    ...marksRead.value.wrong.map(
      (text) =>
        `in the address ${MARK}=${text} is ignored: give NAME:LOW_HIGH, ` +
        "two numbers or two texts in parentheses, the lower one first",
    ),
  ];
});
/** @param {[string, Range]} entry */
const textsOfOne = (entry) => textsOf(new Map([entry]))[0] ?? "";

/** @param {Axis} value */
export const setAxis = (value) => setQuery({ x: value === "step" ? null : value });

/** @param {string} value */
export const setFilter = (value) =>
  setQuery({ filter: value.trim(), show: null, hide: null }, { push: true });

/** @param {number} value */
export const setTop = (value) => setQuery({ top: value === TOP ? null : value, show: null, hide: null });

/**
 * Show a run or hide it, as an exception where the rule says otherwise.
 * @param {string} id
 * @param {boolean} isShown
 * @param {boolean} byRule whether it is among the first `top`
 */
export function setShown(id, isShown, byRule) {
  const show = shownIds.peek().filter((other) => other !== id);
  const hide = hiddenIds.peek().filter((other) => other !== id);
  if (isShown && !byRule) show.push(id);
  if (!isShown && byRule) hide.push(id);
  setQuery({ show: show.join(","), hide: hide.join(",") });
}

/** @param {string} id */
export const showOnly = (id) => setQuery({ top: 0, show: id, hide: null });

/** How the filter orders: the first of its fields, and whether downwards. */
export const order = computed(() => orderOf(filter.value));

/**
 * Order by a field: upwards, then downwards, then as before.
 * @param {string} field as a filter names it
 */
export const orderBy = (field) => setQuery({ filter: orderedBy(filter.peek(), field) });
