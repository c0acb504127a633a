/**
 * Asking for the curves of the panels that are visible: one question for all that are missing, kept while
 * Compare is open.
 */
import { effect, signal } from "@preact/signals";
import { decodeCurves } from "../charts/curves.js";
import { ApiError, early, request } from "../lib/api.js";
import * as places from "./places.js";
import { posted, questionsOf } from "./questions.js";
import { shownIds } from "./runs.js";
import { zoomOf } from "./view.js";

export { curvesOf, standing } from "./places.js";

/** @typedef {import("./places.js").Axis} Axis */
/** @typedef {import("./places.js").Bounds} Bounds */
/** @typedef {import("./places.js").Question} Question */

const REFINE_MS = 120;
const RETRY_MS = 3000;
const KEPT = 4000;

/** Why the last question had no answer. */
export const error = signal("");
/** How many questions are on their way. */
export const asking = signal(0);

/** Counts changes of which panels are visible. */
export const panelsChanged = signal(0);

/**
 * Panels that are visible, by what they show.
 * @type {Map<object, {axis: Axis, keys: string[], changed: () => void}>}
 */
const panels = new Map();
/** @type {Set<AbortController>} */
const questions = new Set();
let planned = false;
let retryAt = 0; // ms; until then nothing is asked
let retrying = 0;
let refining = 0;
/** @type {AbortController | null} */
let refiner = null;

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

/** The metrics of the visible panels, by axis. */
function wanted() {
  /** @type {Map<Axis, Set<string>>} */
  const keysByAxis = new Map();
  for (const { axis, keys } of panels.values())
    for (const key of keys) keysByAxis.set(axis, (keysByAxis.get(axis) ?? new Set()).add(key));
  return keysByAxis;
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
  if (Date.now() < retryAt) return;
  const runs = shownIds.peek();
  /**
   * Metrics that miss the same runs are asked for together.
   * @type {Map<string, {axis: Axis, keys: string[], runs: string[]}>}
   */
  const missing = new Map();
  for (const [axis, keys] of wanted()) {
    for (const key of keys) {
      const lacking = runs.filter((run) => places.isUnknown(axis, key, run));
      if (!lacking.length) continue;
      const question = `${axis}\n${lacking.length === runs.length ? "" : lacking.join(",")}`;
      const entry = missing.get(question) ?? { axis, keys: [], runs: lacking };
      entry.keys.push(key);
      missing.set(question, entry);
    }
  }
  if (missing.size && takeEarly()) return ask();
  for (const { axis, keys, runs: lacking } of missing.values()) askInTurn(questionsOf(axis, keys, lacking));
}

/** One after the other: all at once, and the first panel waits for all. @param {Question[]} parts */
function askInTurn(parts) {
  /** @type {Promise<null>} */
  let before = Promise.resolve(null);
  for (const question of parts) before = fetchCurves(question, before).then(() => null);
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
 * @param {Promise<Response | null>} [earlyAnswer] its answer, where it is on its way; null where it has to be
 *   asked then
 */
async function fetchCurves(question, earlyAnswer) {
  const number = places.noteQuestion(question);
  const stop = new AbortController();
  questions.add(stop);
  asking.value += 1;
  try {
    const answer = await post(question, stop.signal, earlyAnswer);
    places.keep(question, answer.curves, number);
    forget();
    error.value = "";
  } catch (failure) {
    if (stop.signal.aborted) return;
    failed(failure);
    if (failure instanceof ApiError && !failure.passing) places.refuse(question);
  } finally {
    places.over(question);
    questions.delete(stop);
    asking.value -= 1;
  }
  tell(question.x, new Set(question.keys));
  plan();
}

/**
 * Say why a question failed, and ask again where that may help, when the server says.
 * @param {unknown} failure
 */
function failed(failure) {
  error.value = failure instanceof Error ? failure.message : String(failure);
  if (failure instanceof ApiError && !failure.passing) return;
  const wait = failure instanceof ApiError && failure.retry ? 1000 * failure.retry : RETRY_MS;
  retryAt = Date.now() + wait;
  clearTimeout(retrying);
  retrying = window.setTimeout(() => {
    retryAt = 0;
    plan();
  }, wait);
}

/**
 * @param {Question} question
 * @param {AbortSignal} signal
 * @param {Promise<Response | null>} [earlyAnswer]
 */
async function post(question, signal, earlyAnswer) {
  const earlyResponse = await earlyAnswer;
  signal.throwIfAborted();
  const response = earlyResponse?.ok
    ? earlyResponse
    : await request("/curves", { ...posted(question), signal });
  const body = await response.arrayBuffer();
  signal.throwIfAborted();
  return decodeCurves(body);
}

/** @param {Axis} axis @param {Set<string>} keys */
function tell(axis, keys) {
  for (const panel of panels.values())
    if (panel.axis === axis && panel.keys.some((key) => keys.has(key))) panel.changed();
}

/** Curves that no panel shows go first. */
function forget() {
  const [keys, runs] = [wanted(), new Set(shownIds.peek())];
  places.forget(KEPT, (axis, key, run) =>
    Boolean(runs.has(run) && keys.get(/** @type {Axis} */ (axis))?.has(key)),
  );
}

/** What a window hides in buckets is asked for when it stands still. */
function refineSoon() {
  clearTimeout(refining);
  refiner?.abort();
  if (places.AXES.some((axis) => zoomOf(axis).peek()))
    refining = window.setTimeout(() => void refine(), REFINE_MS);
}

async function refine() {
  const stop = new AbortController();
  refiner = stop;
  const runs = shownIds.peek();
  for (const [axis, keys] of wanted()) {
    const bounds = zoomOf(axis).peek();
    if (!bounds) continue;
    const coarse = [...keys].filter((key) => runs.some((run) => places.isCoarse(axis, key, run)));
    for (const question of questionsOf(axis, coarse, runs))
      await refineOne({ ...question, ...bounds }, stop.signal);
  }
}

/** @param {Question & Bounds} question @param {AbortSignal} signal */
async function refineOne(question, signal) {
  if (signal.aborted || Date.now() < retryAt) return;
  asking.value += 1;
  try {
    const answer = await post(question, signal);
    places.keepFine(question, answer.curves);
    tell(question.x, new Set(question.keys));
    performance.mark("halving:refined");
  } catch (failure) {
    if (!signal.aborted) failed(failure);
  } finally {
    asking.value -= 1;
  }
}

/**
 * Add a stream's points of a run's metric; returns what {@link places.take} does.
 * @param {Parameters<typeof places.take>} points
 */
export function take(...points) {
  const rows = places.take(...points);
  for (const axis of places.AXES) tell(axis, new Set([points[0]]));
  return rows;
}

/**
 * Fetch runs' curves again; those that are shown stay until the new ones are there, and those on another axis
 * are asked for when it is chosen.
 * @param {string[]} runs
 * @param {Set<string>} [only] of these metrics alone
 */
export function again(runs, only) {
  const now = wanted();
  for (const axis of places.AXES) {
    const lacking = [...(now.get(axis) ?? [])].filter((key) => !only || only.has(key));
    if (lacking.length && runs.length) askInTurn(questionsOf(axis, lacking, runs));
    if (!now.has(axis)) places.outdate(axis, runs, only);
  }
}

/** The metrics that panels show now. */
export const wantedKeys = () => [...new Set([...panels.values()].flatMap((panel) => panel.keys))].sort();

/** Follow what is shown while Compare is open. */
export function follow() {
  const stops = [
    effect(() => {
      void shownIds.value;
      places.forgive();
      plan();
    }),
    effect(() => {
      for (const axis of places.AXES) void zoomOf(axis).value;
      plan();
    }),
  ];
  return () => {
    for (const stop of stops) stop();
    clearTimeout(refining);
    clearTimeout(retrying);
    retryAt = 0;
    for (const request of [...questions, ...(refiner ? [refiner] : [])]) request.abort();
    places.forgetAll();
  };
}
