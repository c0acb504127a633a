/**
 * What runs log while they are looked at: appended to the curves that are there, fetched again only where
 * that cannot be right.
 */
import { effect, signal } from "@preact/signals";
import { listen } from "../lib/live.js";
import { again, panelsChanged, take, wantedKeys } from "./curve-store.js";
import { isLive, rowOf, shownIds } from "./runs.js";

const MAX_RUNS = 200;
const MAX_KEYS = 100;
const MAX_CHARACTERS = 3500; // of an address for either; proxies take 8,000 in all
const SETTLE_MS = 300;
const DOWN_MS = 3000;
const MAX_LIVE_ROWS = 4000;

/** @typedef {import("../lib/live.js").Points} Points */
/** @typedef {{runs: string[], keys: string[], stop: () => void}} Stream */

/** Why what is shown does not grow, though runs train; "" while it does. */
export const trouble = signal("");

/** Runs whose curves are to be asked for again, together. @type {Set<string>} */
const repeating = new Set();
let repeater = 0;
/** The newest attempt at a run that its curves have points of. @type {Map<string, number>} */
const attempts = new Map();

/** @param {Iterable<string>} runs */
function repeat(runs) {
  for (const run of runs) repeating.add(run);
  if (!repeating.size || repeater) return;
  repeater = window.setTimeout(() => {
    repeater = 0;
    again([...repeating]);
    repeating.clear();
  }, SETTLE_MS);
}

/** @param {Points} points */
function onPoints({ run, key, x, t, value, attempt }) {
  const started = Date.parse(rowOf.peek().get(run)?.started ?? "") / 1000;
  const on = { step: x, time: t, relative: t.map((time) => time - started) };
  const rows = take(
    key,
    run,
    (axis) => on[axis],
    value.map(Number),
    (curve, places, values) => !overlaps(curve, places, values),
  );
  // The later steps of a bucketed curve are out of date.
  const resumed = attempt > (attempts.get(run) ?? attempt);
  attempts.set(run, attempt);
  if (resumed || rows === 0 || rows > MAX_LIVE_ROWS) repeat([run]);
}

/**
 * Whether points before the curve's end differ from it, as those of another attempt do. Points that came
 * twice do not; of those in buckets it cannot be said.
 * @param {import("../charts/curves.js").Curve} curve
 * @param {number[]} x
 * @param {number[]} values
 */
function overlaps(curve, x, values) {
  const last = curve.length - 1;
  const first = curve.min ? (curve.single ?? curve.length) : 0;
  return x.some((place, index) => {
    if (place > curve.x[last]) return false;
    let row = last;
    while (row >= first && curve.x[row] > place) row--;
    if (row < first) return !curve.min && curve.length > 0;
    return curve.x[row] !== place || !same(curve.value[row], values[index]);
  });
}

/** @param {number} a @param {number} b */
const same = (a, b) => Object.is(a, Math.fround(b)) || a === Math.fround(b);

/**
 * Follow the runs that are shown and still log.
 * @param {(state: any) => void} [onRun] called with a run's state, at first and when it changes
 */
export function follow(onRun = () => {}) {
  /** Streams that are open; of one that is not ready yet the one before goes on. @type {Stream[]} */
  const streams = [];
  let timer = 0;
  let down = 0;
  let why = "";
  let said = false;
  let crowded = "";

  /**
   * Said when a stream has been down for a while, however often it was tried meanwhile.
   * @param {boolean} live
   * @param {string} [reason]
   */
  const onState = (live, reason = "the stream broke off") => {
    if (live) {
      clearTimeout(down);
      down = 0;
      said = false;
      trouble.value = crowded;
      return;
    }
    why = `not live: ${reason}`;
    if (said) trouble.value = why;
    down ||= window.setTimeout(() => {
      said = true;
      trouble.value = why;
    }, DOWN_MS);
  };

  /** @param {Stream} me */
  const onReady = (me) => {
    const before = streams.splice(0, streams.indexOf(me));
    for (const stream of before) stream.stop();
    // What was streamed already has no gap; what was fetched before this stream began may have one.
    const had = { runs: new Set(before[0]?.runs), keys: new Set(before[0]?.keys) };
    for (const run of me.runs) if (!had.runs.has(run)) attempts.set(run, rowOf.peek().get(run)?.attempt ?? 0);
    repeat(me.runs.filter((run) => !had.runs.has(run)));
    again(
      me.runs.filter((run) => had.runs.has(run)),
      new Set(me.keys.filter((key) => !had.keys.has(key))),
    );
  };

  const choose = () => {
    const now = streams.at(-1);
    const training = shownIds.peek().filter(isLive);
    const runs = within(training, MAX_RUNS);
    const neededKeys = wantedKeys();
    if (now && sameRuns(now.runs, runs) && neededKeys.every((key) => now.keys.includes(key))) return;
    crowded =
      runs.length < training.length ? `${runs.length} of ${training.length} runs that train are live` : "";
    repeat((now?.runs ?? []).filter((run) => !training.includes(run))); // they have ended: what came last
    if (!runs.length || !neededKeys.length) {
      for (const stream of streams.splice(0)) stream.stop();
      return onState(true);
    }
    // Metrics that were looked at stay in the stream, so that scrolling back begins no other.
    const keys = within([...new Set([...neededKeys, ...(now?.keys ?? [])])], MAX_KEYS);
    const query = [
      ...runs.map((run) => `run=${encodeURIComponent(run)}`),
      ...keys.map((key) => `key=${encodeURIComponent(key)}`),
    ].join("&");
    /** @type {Stream} */
    const me = { runs, keys, stop: () => {} };
    let ready = false;
    streams.push(me);
    me.stop = listen(`/live?${query}`, {
      onPoints,
      onRun,
      onState,
      onReady: () => {
        if (!ready) onReady(me);
        ready = true;
      },
      onResync: (run) => repeat(run ? [run] : runs),
    });
  };

  const end = effect(() => {
    void [shownIds.value, rowOf.value, panelsChanged.value];
    clearTimeout(timer);
    timer = window.setTimeout(choose, SETTLE_MS);
  });
  return () => {
    end();
    for (const timeout of [timer, down, repeater]) clearTimeout(timeout);
    repeater = 0;
    repeating.clear();
    attempts.clear();
    for (const stream of streams) stream.stop();
    trouble.value = "";
  };
}

/**
 * The first names, no more than so many and no longer than an address may be.
 * @param {string[]} names
 * @param {number} limit
 */
function within(names, limit) {
  let characters = 0;
  const end = names.findIndex(
    (name) => (characters += encodeURIComponent(name).length + 5) > MAX_CHARACTERS,
  );
  return names.slice(0, Math.min(limit, end < 0 ? names.length : end));
}

/** @param {string[]} these @param {string[]} those */
const sameRuns = (these, those) => these.length === those.length && those.every((run) => these.includes(run));
