/** What runs log while they are looked at: appended to the curves that are there, fetched again only where that cannot be right. */
import { effect } from "@preact/signals";
import { append, growable } from "../charts/curves.js";
import { listen } from "../lib/live.js";
import { again, appended, heldOf, panelsChanged, wantedKeys } from "./curve-store.js";
import { rowOf, shown } from "./runs.js";

const MOST_RUNS = 200;
const MOST_KEYS = 100;
const SETTLE_MS = 300;
const LONGEST = 4000;
const LIVE = new Set(["running", "unfinished"]);

/** @typedef {import("../lib/live.js").Points} Points */

/** Runs whose curves are asked for again, each once in a while. @type {Map<string, number>} */
const repeating = new Map();

/** @param {string} run */
function repeat(run) {
  if (repeating.has(run)) return;
  repeating.set(
    run,
    window.setTimeout(() => {
      repeating.delete(run);
      again(run);
    }, SETTLE_MS),
  );
}

/** @param {Points} points */
function take(points) {
  const started = Date.parse(rowOf.peek().get(points.run)?.started ?? "") / 1000;
  const values = points.value.map(Number);
  for (const held of heldOf(points.key, points.run)) {
    if (held.curve === undefined) continue; // never asked for; it comes whole when it is
    const x = held.axis === "step" ? points.x : held.axis === "time" ? points.t : points.t.map((t) => t - started);
    if (x.some(Number.isNaN)) continue;
    if (held.curve === null) {
      held.set(growable(points.run, points.key, x, values));
    } else if (overlaps(held.curve, x, values)) {
      repeat(points.run); // another attempt began earlier than the last one ended
    } else {
      append(held.curve, x, values);
      if (held.curve.length > LONGEST) repeat(points.run);
    }
    appended(held.axis, points.key);
  }
}

/**
 * Whether points before the curve's end say something else than it does. Those that came twice do not.
 * @param {import("../charts/curves.js").Curve} curve
 * @param {number[]} x
 * @param {number[]} values
 */
function overlaps(curve, x, values) {
  const last = curve.length - 1;
  if (last < 0 || curve.min) return false;
  return x.some((at, index) => {
    if (at > curve.x[last]) return false;
    for (let row = last; row >= 0 && curve.x[row] >= at; row--) if (curve.x[row] === at) return !same(curve.value[row], values[index]);
    return true;
  });
}

/** @param {number} a @param {number} b */
const same = (a, b) => Object.is(a, Math.fround(b)) || a === Math.fround(b);

/**
 * Follow the runs that are shown and still log.
 * @param {(state: any) => void} [onRun] called with a run's state, at first and when it changes
 */
export function follow(onRun = () => {}) {
  let path = "";
  let stop = () => {};
  let timer = 0;
  const choose = () => {
    const rows = rowOf.peek();
    const runs = shown.peek().filter((id) => LIVE.has(rows.get(id)?.status ?? "")).slice(0, MOST_RUNS);
    const keys = wantedKeys().slice(0, MOST_KEYS);
    const next = runs.length && keys.length ? `/live?${[...runs.map((run) => `run=${encodeURIComponent(run)}`), ...keys.map((key) => `key=${encodeURIComponent(key)}`)].join("&")}` : "";
    if (next === path) return;
    const before = new Set(new URLSearchParams(path.slice(6)).getAll("run"));
    path = next;
    stop();
    stop = () => {};
    if (!next) {
      for (const run of before) repeat(run);
      return;
    }
    for (const run of before) if (!runs.includes(run)) repeat(run); // it has ended: what came last
    stop = listen(next, {
      onPoints: take,
      onRun,
      onReady: () => runs.forEach(repeat),
      onResync: (run) => (run ? [run] : runs).forEach(repeat),
    });
  };
  const end = effect(() => {
    void [shown.value, rowOf.value, panelsChanged.value];
    clearTimeout(timer);
    timer = window.setTimeout(choose, SETTLE_MS);
  });
  return () => {
    end();
    clearTimeout(timer);
    for (const each of repeating.values()) clearTimeout(each);
    repeating.clear();
    stop();
  };
}
