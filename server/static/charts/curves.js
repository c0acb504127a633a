// Curves as typed arrays: decoding the server's binary answer without copying, smoothing, bounds, appending what arrives live.

/**
 * One metric of one run. The arrays may be longer than `length`: what arrives live is appended in place.
 *
 * @typedef {object} Curve
 * @property {string} run
 * @property {string} key
 * @property {number} length rows that count
 * @property {number} points points that the rows stand for
 * @property {Float64Array} x ascending
 * @property {Float32Array} value
 * @property {Float32Array | null} min null where every row is one point
 * @property {Float32Array | null} max
 * @property {{weight: number, length: number, values: Float32Array} | null} [smooth] what {@link smoothed} keeps
 */

/** @typedef {{x: string, curves: Curve[], missing: [string, string][]}} CurveAnswer */

/**
 * The curves of a binary answer; the arrays are views on `buffer`.
 *
 * Layout, little endian: uint32 length of the header, the header as JSON, then for each curve float64 x, float32 value, and
 * where it is bucketed float32 min and max, each array padded to 8 bytes.
 *
 * @param {ArrayBuffer} buffer
 * @returns {CurveAnswer}
 */
export function decodeCurves(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const start = 4 + length;
  const curves = header.curves.map((/** @type {any} */ entry) => {
    const rows = entry.rows;
    let at = start + entry.offset;
    const x = new Float64Array(buffer, at, rows);
    at += 8 * rows;
    const floats = () => {
      const view = new Float32Array(buffer, at, rows);
      at += 8 * Math.ceil(rows / 2);
      return view;
    };
    const value = floats();
    const [min, max] = entry.bucketed ? [floats(), floats()] : [null, null];
    return { run: entry.run, key: entry.key, length: rows, points: entry.points, x, value, min, max };
  });
  return { x: header.x, curves, missing: header.missing ?? [] };
}

/**
 * A curve with room of its own, for those that are made or appended to in the page.
 *
 * @param {string} run
 * @param {string} key
 * @param {ArrayLike<number>} x
 * @param {ArrayLike<number>} value
 * @returns {Curve}
 */
export function growable(run, key, x, value) {
  return { run, key, length: x.length, points: x.length, x: Float64Array.from(x), value: Float32Array.from(value), min: null, max: null };
}

/**
 * Append points that came after the curve's last; those at or before its last x are left out.
 *
 * @param {Curve} curve
 * @param {ArrayLike<number>} x ascending
 * @param {ArrayLike<number>} value
 * @returns {number} how many were appended
 */
export function append(curve, x, value) {
  let from = 0;
  const last = curve.length ? curve.x[curve.length - 1] : -Infinity;
  while (from < x.length && x[from] <= last) from++;
  const count = x.length - from;
  if (count === 0) return 0;
  makeRoom(curve, curve.length + count);
  for (let i = 0; i < count; i++) {
    const at = curve.length + i;
    curve.x[at] = x[from + i];
    curve.value[at] = value[from + i];
    if (curve.min && curve.max) curve.min[at] = curve.max[at] = value[from + i];
  }
  curve.length += count;
  curve.points += count;
  return count;
}

/** @param {Curve} curve @param {number} rows */
function makeRoom(curve, rows) {
  if (rows <= curve.x.length) return;
  const room = Math.max(64, 2 * rows);
  const grown = (/** @type {Float32Array} */ old) => {
    const values = new Float32Array(room);
    values.set(old);
    return values;
  };
  const x = new Float64Array(room);
  x.set(curve.x);
  curve.x = x;
  curve.value = grown(curve.value);
  if (curve.min && curve.max) [curve.min, curve.max] = [grown(curve.min), grown(curve.max)];
}

/**
 * The values as an exponential moving average, unbiased at the start as Adam's moments are (Kingma & Ba 2014, section 3); the same
 * as `halving.curves(smooth={"ema": weight})`. NaN and infinities stay where they are and do not enter the average.
 *
 * @param {Curve} curve
 * @param {number} weight of the past, 0 (none) to below 1
 * @returns {Float32Array}
 */
export function smoothed(curve, weight) {
  if (!(weight > 0)) return curve.value;
  const kept = curve.smooth;
  if (kept && kept.weight === weight && kept.length === curve.length) return kept.values;
  const values = new Float32Array(curve.length);
  let average = 0;
  let seen = 1;
  for (let i = 0; i < curve.length; i++) {
    const value = curve.value[i];
    if (Number.isFinite(value)) {
      average = weight * average + (1 - weight) * value;
      seen *= weight;
      values[i] = average / (1 - seen);
    } else {
      values[i] = value;
    }
  }
  curve.smooth = { weight, length: curve.length, values };
  return values;
}

/**
 * The first row whose x is at least `at`.
 *
 * @param {Float64Array} x
 * @param {number} length
 * @param {number} at
 */
export function firstFrom(x, length, at) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * The rows that show in a window, one more on each side so that lines reach its edges: [from, to).
 *
 * @param {Curve} curve
 * @param {number} low
 * @param {number} high
 * @returns {[number, number]}
 */
export function rowsWithin(curve, low, high) {
  const from = firstFrom(curve.x, curve.length, low);
  let to = firstFrom(curve.x, curve.length, high);
  while (to < curve.length && curve.x[to] === high) to++;
  return [Math.max(0, from - 1), Math.min(curve.length, to + 1)];
}

/** @typedef {{low: number, high: number}} Bounds */

/** @param {Bounds | null | undefined} a @param {Bounds | null} b */
export const sameBounds = (a, b) => a === b || (a?.low === b?.low && a?.high === b?.high);

/**
 * The smallest and largest x of curves; with `positive` only of what a logarithmic axis can show.
 *
 * @param {Curve[]} curves
 * @param {boolean} positive
 * @returns {Bounds | null}
 */
export function xBounds(curves, positive) {
  let low = Infinity;
  let high = -Infinity;
  for (const curve of curves) {
    if (curve.length === 0) continue;
    const from = positive ? firstFrom(curve.x, curve.length, Number.MIN_VALUE) : 0;
    if (from >= curve.length) continue;
    if (curve.x[from] < low) low = curve.x[from];
    if (curve.x[curve.length - 1] > high) high = curve.x[curve.length - 1];
  }
  return low <= high ? { low, high } : null;
}

/**
 * The smallest and largest finite value within a window of x, the band's where it is drawn.
 *
 * @param {Curve[]} curves
 * @param {Bounds} window
 * @param {{weight: number, band: boolean, positive: boolean}} shown
 * @returns {Bounds | null}
 */
export function yBounds(curves, window, shown) {
  let low = Infinity;
  let high = -Infinity;
  const floor = shown.positive ? Number.MIN_VALUE : -Infinity;
  for (const curve of curves) {
    const from = firstFrom(curve.x, curve.length, window.low);
    const values = smoothed(curve, shown.weight);
    const lows = shown.band && curve.min ? curve.min : values;
    const highs = shown.band && curve.max ? curve.max : values;
    for (let i = from; i < curve.length && curve.x[i] <= window.high; i++) {
      const least = lows[i];
      const most = highs[i];
      if (least < low && least >= floor && least !== -Infinity) low = least;
      if (most > high && most >= floor && most !== Infinity) high = most;
    }
  }
  return low <= high ? { low, high } : null;
}

/**
 * What a table beside a chart says of a curve.
 *
 * @param {Curve} curve
 * @returns {{last: number, lastX: number, min: number, minX: number, max: number, maxX: number}}
 */
export function summaryOf(curve) {
  const end = curve.length - 1;
  const found = { last: NaN, lastX: NaN, min: Infinity, minX: NaN, max: -Infinity, maxX: NaN };
  if (end >= 0) [found.last, found.lastX] = [curve.value[end], curve.x[end]];
  for (let i = 0; i <= end; i++) {
    const low = curve.min ? curve.min[i] : curve.value[i];
    const high = curve.max ? curve.max[i] : curve.value[i];
    if (Number.isFinite(low) && low < found.min) [found.min, found.minX] = [low, curve.x[i]];
    if (Number.isFinite(high) && high > found.max) [found.max, found.maxX] = [high, curve.x[i]];
  }
  if (found.min === Infinity) found.min = NaN;
  if (found.max === -Infinity) found.max = NaN;
  return found;
}
