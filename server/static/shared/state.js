/** How a shared page is looked at: axes, smoothing, zoom, and which runs are shown. Nothing of it is kept. */
import { computed, effect, signal } from "@preact/signals";
import { dress } from "../lib/colours.js";
import { linesOf } from "./groups.js";

/** @typedef {import("./payload.js").Axis} Axis */
/** @typedef {import("./payload.js").Facts} Facts */
/** @typedef {import("./payload.js").Run} Run */
/** @typedef {{low: number, high: number}} Bounds */
/** @typedef {Awaited<ReturnType<typeof import("./payload.js").read>>["curves"]} Curves */

export const axis = signal(/** @type {Axis} */ ("step"));
export const logX = signal(false);
export const logY = signal(false);
export const smoothing = signal(0);
export const band = signal(true);
/** Windows of the axes, and of metrics' values; what has none shows all. */
export const windows = signal(/** @type {Partial<Record<Axis, Bounds>>} */ ({}));
export const valueWindows = signal(/** @type {ReadonlyMap<string, Bounds>} */ (new Map()));
export const hidden = signal(/** @type {ReadonlySet<string>} */ (new Set()));
/** The run under the pointer, in a chart or the table. */
export const highlighted = signal(/** @type {string | null} */ (null));
/** Part of the names of the charts that are shown. */
export const search = signal("");
/** The table's order: a column's name, behind a minus downwards. */
export const order = signal("");

const runs = signal(/** @type {Run[]} */ ([]));
export const visible = computed(
  () => new Set(runs.value.map((run) => run.id).filter((id) => !hidden.value.has(id))),
);
/** Which line of the charts is a run's, where it is not its own: that of its group. */
export const lines = signal(/** @type {ReadonlyMap<string, string>} */ (new Map()));
/** @param {string} run */
export const lineOf = (run) => lines.value.get(run) ?? run;
export const isZoomed = computed(
  () => windows.value[axis.value] !== undefined || valueWindows.value.size > 0,
);

/** Begin with what the page's maker looked at. @param {Facts} facts */
export function begin(facts) {
  const { drawing } = facts;
  const bounds = (/** @type {[number, number]} */ [low, high]) => ({ low, high });
  runs.value = facts.runs;
  lines.value = linesOf(facts.runs, facts.group);
  axis.value = drawing.axis;
  logX.value = drawing.logX;
  logY.value = drawing.logY;
  smoothing.value = drawing.smoothing;
  band.value = drawing.band;
  windows.value = Object.fromEntries(
    Object.entries(drawing.zooms).map(([name, ends]) => [name, bounds(ends)]),
  );
  valueWindows.value = new Map(
    Object.entries(drawing.metricZooms).map(([name, ends]) => [name, bounds(ends)]),
  );
  effect(() => dress([...new Set([...visible.value].map(lineOf))]));
}

/**
 * @param {Bounds | null} window of the axis that is shown
 * @param {string} metric
 * @param {Bounds | null} values of the metric
 */
export function setZoom(window, metric, values) {
  const next = { ...windows.peek() };
  if (window) next[axis.peek()] = window;
  else delete next[axis.peek()];
  windows.value = next;
  const metrics = new Map(valueWindows.peek());
  if (values) metrics.set(metric, values);
  else metrics.delete(metric);
  valueWindows.value = metrics;
}

export function showAll() {
  windows.value = {};
  valueWindows.value = new Map();
}

/** @param {string} id */
export function turn(id) {
  const next = new Set(hidden.peek());
  if (!next.delete(id)) next.add(id);
  hidden.value = next;
}

/** Show all runs, or none of them. @param {boolean} all */
export function turnAll(all) {
  hidden.value = all ? new Set() : new Set(runs.peek().map((run) => run.id));
}
