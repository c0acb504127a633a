/**
 * What is known of the curves of panels. A place is one metric of one run on one axis: it is unknown, asked
 * for, refused, or known, which is a curve or that the run has none.
 *
 * What is streamed goes to the curve that is known, to the finer one of the zoomed window, and is kept beside
 * a question that is on its way, whose answer may be older. Of two questions for a place the answer of the
 * one that was asked last counts, whichever comes last.
 */
import { append, growable } from "../charts/curves.js";
import { zoomOf } from "./view.js";

/** @typedef {import("../charts/curves.js").Curve} Curve */
/** @typedef {import("./questions.js").Axis} Axis */
/** @typedef {import("./questions.js").Question} Question */
/** @typedef {{low: number, high: number}} Bounds */
/**
 * @typedef {{curve: Curve | null, question: number}} Known question: the number of the question; curve is
 *   null where the run has none
 */
/**
 * @typedef {{questions: number, x: number[], value: number[], outdated?: number}} Pending how many questions
 *   are on their way, what was streamed meanwhile, and the last question whose answer counts no more
 */

export const AXES = /** @type {const} */ (["step", "time", "relative"]);

/** @type {Map<string, Known>} */
const entries = new Map();
/** @type {Map<string, Pending>} */
const pending = new Map();
/** Places that the server gives nothing of, until other runs are shown. @type {Set<string>} */
const refused = new Set();
/**
 * Finer curves of a zoomed window, by axis.
 * @type {Map<Axis, {window: string, curves: Map<string, Curve>}>}
 */
const fine = new Map();
let count = 0; // of questions

/** @param {Axis} axis @param {string} key @param {string} run */
const place = (axis, key, run) => `${axis}\n${key}\n${run}`;
/** @param {Bounds | null} window */
const named = (window) => (window ? `${window.low}_${window.high}` : "");
/** @param {Question} question */
const placesOf = ({ runs, keys, x }) => keys.flatMap((key) => runs.map((run) => place(x, key, run)));

/** The finer curves of an axis, where they are those of the window that is shown. @param {Axis} axis */
function fineNow(axis) {
  const refinement = fine.get(axis);
  return refinement && refinement.window === named(zoomOf(axis).peek()) ? refinement.curves : null;
}

/**
 * The curves of a panel, as far as they are known; finer ones within the window.
 * @param {Axis} axis
 * @param {string} key
 * @param {string[]} runs
 */
export function curvesOf(axis, key, runs) {
  const refined = fineNow(axis);
  const curves = [];
  for (const run of runs) {
    const name = place(axis, key, run);
    const curve = refined?.get(name) ?? entries.get(name)?.curve;
    if (curve) curves.push(curve);
  }
  return curves;
}

/**
 * What is known of all that a panel asked for: "whole", "refused" where the server gave nothing of a part, or
 * "asked".
 * @param {Axis} axis
 * @param {string} key
 * @param {string[]} runs
 */
export function standing(axis, key, runs) {
  const missing = runs.map((run) => place(axis, key, run)).filter((name) => !entries.has(name));
  if (!missing.length) return "whole";
  return missing.every((name) => refused.has(name)) ? "refused" : "asked";
}

/**
 * Whether nothing is known of a place, and nothing asked.
 * @param {Axis} axis
 * @param {string} key
 * @param {string} run
 */
export const isUnknown = (axis, key, run) =>
  [entries, pending, refused].every((places) => !places.has(place(axis, key, run)));

/**
 * Whether a zoomed window may have more points of a curve than are known.
 * @param {Axis} axis
 * @param {string} key
 * @param {string} run
 */
export const isCoarse = (axis, key, run) =>
  Boolean(entries.get(place(axis, key, run))?.curve?.min && !fineNow(axis)?.has(place(axis, key, run)));

/** Note that a question is asked; its number. @param {Question} question */
export function noteQuestion(question) {
  for (const name of placesOf(question)) {
    const requests = pending.get(name);
    if (requests) requests.questions += 1;
    else pending.set(name, { questions: 1, x: [], value: [] });
  }
  return ++count;
}

/** Note that a question is over, answered or not. @param {Question} question */
export function over(question) {
  for (const name of placesOf(question)) {
    const requests = pending.get(name);
    if (requests && --requests.questions === 0) pending.delete(name);
  }
}

/**
 * Note that what is known of runs on an axis, and answers on their way, lack points: they are fetched again
 * when they are needed.
 * @param {Axis} axis
 * @param {string[]} runs
 * @param {Set<string>} [only] of these metrics alone
 */
export function outdate(axis, runs, only) {
  const meant = new Set(runs);
  for (const places of [entries, pending]) {
    for (const name of [...places.keys()]) {
      const [on, key = "", run = ""] = name.split("\n");
      if (on !== axis || !meant.has(run) || (only && !only.has(key))) continue;
      entries.delete(name);
      const requests = pending.get(name);
      if (requests) requests.outdated = count;
    }
  }
}

/** Note that the server gives nothing to a question; what is known stays. @param {Question} question */
export function refuse(question) {
  for (const name of placesOf(question)) refused.add(name);
}

/** Other runs are shown: what was refused may be asked again. */
export const forgive = () => refused.clear();

/**
 * Keep a question's answer, with what was streamed since it was asked.
 * @param {Question} question
 * @param {Curve[]} curves
 * @param {number} number of the question
 */
export function keep(question, curves, number) {
  const axis = question.x;
  const curvesByName = new Map(curves.map((curve) => [place(axis, curve.key, curve.run), curve]));
  for (const key of question.keys) {
    for (const run of question.runs) {
      const name = place(axis, key, run);
      if ((entries.get(name)?.question ?? 0) > number) continue;
      const streamed = pending.get(name);
      if (number <= (streamed?.outdated ?? 0)) continue;
      let curve = curvesByName.get(name) ?? null;
      if (curve && streamed) append(curve, streamed.x, streamed.value);
      else if (streamed?.x.length) curve = growable(run, key, streamed.x, streamed.value);
      entries.set(name, { curve, question: number });
      fine.get(axis)?.curves.delete(name);
    }
  }
}

/**
 * Keep the finer curves of a window, with what was streamed behind them.
 * @param {Question & Bounds} question
 * @param {Curve[]} curves
 */
export function keepFine(question, curves) {
  const axis = question.x;
  const window = { low: question.low, high: question.high };
  if (named(zoomOf(axis).peek()) !== named(window)) return;
  if (!fineNow(axis)) fine.set(axis, { window: named(window), curves: new Map() });
  for (const curve of curves) {
    const name = place(axis, curve.key, curve.run);
    const whole = entries.get(name)?.curve;
    if (!whole) continue;
    const from = whole.single ?? whole.length;
    grow(curve, whole.x.subarray(from, whole.length), whole.value.subarray(from, whole.length), window);
    fineNow(axis)?.set(name, { ...curve, whole });
  }
}

/**
 * Append what is within a window.
 * @param {Curve} curve
 * @param {ArrayLike<number>} x
 * @param {ArrayLike<number>} value
 * @param {Bounds} window
 */
function grow(curve, x, value, { low, high }) {
  const within = Array.from(x).flatMap((position, index) =>
    position >= low && position <= high ? [index] : [],
  );
  append(
    curve,
    within.map((index) => x[index]),
    within.map((index) => value[index]),
  );
}

/**
 * What a stream has of a run, to be added to all that is known of it, and beside all that is asked for.
 * @param {string} key
 * @param {string} run
 * @param {(axis: Axis) => number[]} placesOn where the points are on an axis
 * @param {number[]} values
 * @param {(curve: Curve, x: number[], values: number[]) => boolean} fits whether they can be appended
 * @returns {number} rows of the longest curve; 0 where something did not fit
 */
export function take(key, run, placesOn, values, fits) {
  let rows = 1;
  for (const axis of AXES) {
    const name = place(axis, key, run);
    const [entry, waiting] = [entries.get(name), pending.get(name)];
    if (!entry && !waiting) continue; // never asked for; it comes whole when it is
    const x = placesOn(axis);
    if (x.some(Number.isNaN)) continue;
    waiting?.x.push(...x);
    waiting?.value.push(...values);
    if (!entry) continue;
    if (!entry.curve) entry.curve = growable(run, key, x, values);
    else if (fits(entry.curve, x, values)) {
      append(entry.curve, x, values);
      const window = zoomOf(axis).peek();
      const finer = fineNow(axis)?.get(name);
      if (finer && window) grow(finer, x, values, window);
    } else rows = 0;
    rows = rows && Math.max(rows, entry.curve.length);
  }
  return rows;
}

/**
 * Forget the places that are not among those to be kept, until there are no more than so many.
 * @param {number} limit
 * @param {(axis: string, key: string, run: string) => boolean} kept
 */
export function forget(limit, kept) {
  for (const name of entries.keys()) {
    if (entries.size <= limit) return;
    const [axis = "", key = "", run = ""] = name.split("\n");
    if (!kept(axis, key, run)) entries.delete(name);
  }
}

export function forgetAll() {
  for (const collection of [entries, pending, refused, fine]) collection.clear();
}
