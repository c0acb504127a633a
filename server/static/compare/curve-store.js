/** Curves of the panels that are visible: one question for all that are missing, kept while Compare is open. */
import { effect, signal } from "@preact/signals";
import { decodeCurves } from "../charts/curves.js";
import { ApiError, early, request } from "../lib/api.js";
import { posted, questionOf, questionsOf } from "./questions.js";
import { shown } from "./runs.js";
import { zoom } from "./view.js";

/** @typedef {import("../charts/curves.js").Curve} Curve */
/** @typedef {import("./questions.js").Axis} Axis */
/** @typedef {import("./questions.js").Question} Question */
/** @typedef {{low: number, high: number}} Bounds */

const REFINE_MS = 120;
const RETRY_MS = 3000;
const KEPT = 4000;

/** Why the last question had no answer. */
export const error = signal("");
/** How many questions are on their way. */
export const asking = signal(0);

/** Counts changes of which panels are visible. */
export const panelsChanged = signal(0);

/** Curves by axis, metric, run; null where a run has none of a metric. @type {Map<string, Curve | null>} */
const known = new Map();
/** Finer ones of a window. @type {{window: string, curves: Map<string, Curve>}} */
let fine = { window: "", curves: new Map() };

/** Panels that are visible, by what they show. @type {Map<object, {axis: Axis, keys: string[], changed: () => void}>} */
const panels = new Map();
/** @type {Set<AbortController>} */
const questions = new Set();
/** @type {Set<string>} */
const pending = new Set();
let planned = false;
let refining = 0;
/** @type {AbortController | null} */
let refiner = null;

/** @param {Axis} axis @param {string} key @param {string} run */
const place = (axis, key, run) => `${axis}\n${key}\n${run}`;
/** @param {Bounds | null} window */
const named = (window) => (window ? `${window.low}_${window.high}` : "");

/**
 * The curves of a panel, as far as they are known; finer ones within the window.
 * @param {Axis} axis
 * @param {string} key
 * @param {string[]} runs
 */
export function curvesOf(axis, key, runs) {
  const refined = fine.window && fine.window === named(zoom.peek()) ? fine.curves : null;
  const curves = [];
  for (const run of runs) {
    const at = place(axis, key, run);
    const curve = refined?.get(at) ?? known.get(at);
    if (curve) curves.push(curve);
  }
  return curves;
}

/**
 * Whether everything a panel asked for is known.
 * @param {Axis} axis
 * @param {string} key
 * @param {string[]} runs
 */
export const complete = (axis, key, runs) => runs.every((run) => known.has(place(axis, key, run)));

/**
 * Have a panel's curves fetched as long as it is visible.
 * @param {Axis} axis
 * @param {string[]} keys
 * @param {() => void} changed called when there are new ones
 * @returns {() => void} ends it
 */
export function want(axis, keys, changed) {
  const me = {};
  panels.set(me, { axis, keys, changed });
  panelsChanged.value = panelsChanged.peek() + 1;
  plan();
  return () => {
    panels.delete(me);
    panelsChanged.value = panelsChanged.peek() + 1;
  };
}

/** Ask for all that is missing, once for what becomes visible together. */
export function plan() {
  if (planned) return;
  planned = true;
  queueMicrotask(() => {
    planned = false;
    ask();
    refineSoon();
  });
}

function ask() {
  const runs = shown.peek();
  /** Metrics that miss the same runs are asked for together. @type {Map<string, {axis: Axis, keys: Set<string>, runs: string[]}>} */
  const missing = new Map();
  for (const { axis, keys } of panels.values()) {
    for (const key of keys) {
      const lacking = runs.filter((run) => !known.has(place(axis, key, run)) && !pending.has(place(axis, key, run)));
      if (!lacking.length) continue;
      const same = `${axis}\n${lacking.length === runs.length ? "" : lacking.join(",")}`;
      const entry = missing.get(same) ?? { axis, keys: new Set(), runs: lacking };
      entry.keys.add(key);
      missing.set(same, entry);
    }
  }
  if (missing.size && takeEarly()) return ask();
  for (const { axis, keys, runs: lacking } of missing.values()) {
    /** @type {Promise<null>} */
    let before = Promise.resolve(null);
    for (const question of questionsOf(axis, [...keys], lacking)) before = fetchCurves(question, before).then(() => null);
  }
}

/** Take over what first-curves.js has asked meanwhile; whether there was something. */
function takeEarly() {
  if (!early || early.taken) return false;
  early.taken = true;
  for (const { question, answer } of early.curves) void fetchCurves(question, answer);
  return early.curves.length > 0;
}

/**
 * @param {Question} question
 * @param {Promise<Response | null>} [asked] its answer, where it is on its way; null where it has to be asked then
 */
async function fetchCurves(question, asked) {
  const { runs, keys, x: axis } = question;
  const places = keys.flatMap((key) => runs.map((run) => place(axis, key, run)));
  for (const at of places) pending.add(at);
  const stop = new AbortController();
  questions.add(stop);
  asking.value += 1;
  try {
    const answer = await post(question, stop.signal, asked);
    for (const at of places) known.set(at, null);
    for (const curve of answer.curves) known.set(place(axis, curve.key, curve.run), curve);
    forget();
    error.value = "";
    tell(axis, new Set(keys));
  } catch (failure) {
    if (!stop.signal.aborted) {
      error.value = failure instanceof Error ? failure.message : String(failure);
      if (!(failure instanceof ApiError) || failure.passing) setTimeout(plan, RETRY_MS);
      else for (const at of places) known.set(at, null);
    }
  } finally {
    for (const at of places) pending.delete(at);
    questions.delete(stop);
    asking.value -= 1;
  }
}

/**
 * @param {Question} question
 * @param {AbortSignal} signal
 * @param {Promise<Response | null>} [asked]
 */
async function post(question, signal, asked) {
  const there = await asked;
  signal.throwIfAborted();
  const response = there?.ok ? there : await request("/curves", { ...posted(question), signal });
  const body = await response.arrayBuffer();
  signal.throwIfAborted();
  return decodeCurves(body);
}

/** @param {Axis} axis @param {Set<string>} keys */
function tell(axis, keys) {
  for (const panel of panels.values()) if (panel.axis === axis && panel.keys.some((key) => keys.has(key))) panel.changed();
}

/** Curves that no panel shows go first. */
function forget() {
  if (known.size <= KEPT) return;
  const kept = new Set();
  for (const { axis, keys } of panels.values()) for (const key of keys) for (const run of shown.peek()) kept.add(place(axis, key, run));
  for (const at of known.keys()) {
    if (known.size <= KEPT) return;
    if (!kept.has(at)) known.delete(at);
  }
}

/** What a window hides in buckets is asked for when it stands still. */
function refineSoon() {
  clearTimeout(refining);
  refiner?.abort();
  const window = zoom.peek();
  if (!window) return;
  refining = setTimeout(() => void refine(window), REFINE_MS);
}

/** @param {Bounds} window */
async function refine(window) {
  if (fine.window !== named(window)) fine = { window: named(window), curves: new Map() };
  const runs = shown.peek();
  /** @type {Map<Axis, Set<string>>} */
  const coarse = new Map();
  for (const { axis, keys } of panels.values()) {
    for (const key of keys) {
      if (runs.some((run) => known.get(place(axis, key, run))?.min && !fine.curves.has(place(axis, key, run)))) {
        coarse.set(axis, (coarse.get(axis) ?? new Set()).add(key));
      }
    }
  }
  const stop = new AbortController();
  refiner = stop;
  for (const [axis, keys] of coarse) {
    asking.value += 1;
    try {
      const answer = await post({ ...questionOf(axis, [...keys], runs), low: window.low, high: window.high }, stop.signal);
      for (const curve of answer.curves) fine.curves.set(place(axis, curve.key, curve.run), curve);
      tell(axis, keys);
      performance.mark("halving:refined");
    } catch (failure) {
      if (!stop.signal.aborted) error.value = failure instanceof Error ? failure.message : String(failure);
    } finally {
      asking.value -= 1;
    }
  }
}

/**
 * Curves that are known of a run, to append to.
 * @param {string} key
 * @param {string} run
 * @returns {{axis: Axis, curve: Curve | null | undefined, set: (curve: Curve) => void}[]}
 */
export function heldOf(key, run) {
  return /** @type {Axis[]} */ (["step", "time", "relative"]).map((axis) => {
    const at = place(axis, key, run);
    return { axis, curve: known.get(at), set: (curve) => known.set(at, curve) };
  });
}

/** @param {Axis} axis @param {string} key */
export const appended = (axis, key) => tell(axis, new Set([key]));

/**
 * Fetch a run's curves again; those that are shown stay until the new ones are there.
 * @param {string} run
 */
export function again(run) {
  /** @type {Map<Axis, Set<string>>} */
  const wanted = new Map();
  for (const { axis, keys } of panels.values()) for (const key of keys) wanted.set(axis, (wanted.get(axis) ?? new Set()).add(key));
  for (const [axis, keys] of wanted) void fetchCurves(questionOf(axis, [...keys], [run]));
}

/** The metrics that panels show now. */
export const wantedKeys = () => [...new Set([...panels.values()].flatMap((panel) => panel.keys))].sort();

/** Follow what is shown while Compare is open. */
export function follow() {
  const stop = effect(() => {
    void [shown.value, zoom.value];
    plan();
  });
  return () => {
    stop();
    clearTimeout(refining);
    for (const each of [...questions, ...(refiner ? [refiner] : [])]) each.abort();
    known.clear();
    pending.clear();
    fine = { window: "", curves: new Map() };
  };
}
