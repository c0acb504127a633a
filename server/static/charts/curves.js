// Curves as typed arrays: decoding the server's binary answer without copying, smoothing, bounds, appending
// what arrives live.

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
 * @property {number} [single] of a bucketed curve the first row that is one point again: from there on it was
 *   appended to
 * @property {Curve} [whole] of a window's curve the one that it is a part of, whose earlier values its
 *   smoothing goes on from
 * @property {number} [members] of a group's curve how many runs it is the mean of; min and max are then mean
 *   ∓ standard deviation
 * @property {{weight: number, length: number, values: Float32Array} | null} [smooth] what {@link smoothed}
 *   keeps
 */

/** @typedef {{x: string, curves: Curve[], missing: [string, string][]}} CurveAnswer */

/**
 * The curves of a binary answer; the arrays are views on `buffer`.
 *
 * Layout, little endian: uint32 length of the header, the header as JSON, then for each curve float64 x,
 * float32 value, and where it is bucketed float32 min and max, each array padded to 8 bytes.
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
    let offset = start + entry.offset;
    const x = new Float64Array(buffer, offset, rows);
    offset += 8 * rows;
    const floats = () => {
      const view = new Float32Array(buffer, offset, rows);
      offset += 8 * Math.ceil(rows / 2);
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
  return {
    run,
    key,
    length: x.length,
    points: x.length,
    x: Float64Array.from(x),
    value: Float32Array.from(value),
    min: null,
    max: null,
  };
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
  if (curve.min) curve.single ??= curve.length;
  for (let i = 0; i < count; i++) {
    const row = curve.length + i;
    curve.x[row] = x[from + i];
    curve.value[row] = value[from + i];
    if (curve.min && curve.max) curve.min[row] = curve.max[row] = value[from + i];
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
 * The values as an exponential moving average, unbiased at the start as Adam's moments are (Kingma & Ba 2014,
 * section 3): of single points what `halving.curves(smooth={"ema": weight})` gives. A bucket counts as the
 * points that it stands for, and a window's curve goes on from what was before it, so that the average at a
 * place is nearly the same however the curve was cut. NaN and infinities stay where they are and do not enter
 * the average.
 *
 * @param {Curve} curve
 * @param {number} weight of the past for each point, 0 (none) to below 1
 * @returns {Float32Array}
 */
export function smoothed(curve, weight) {
  if (!(weight > 0)) return curve.value;
  const kept = curve.smooth;
  if (kept && kept.weight === weight && kept.length === curve.length) return kept.values;
  const values = new Float32Array(curve.length);
  const state = { average: 0, weight: 1 };
  if (curve.whole && curve.length)
    blend(curve.whole, weight, state, firstFrom(curve.whole.x, curve.whole.length, curve.x[0]), null);
  blend(curve, weight, state, curve.length, values);
  curve.smooth = { weight, length: curve.length, values };
  return values;
}

/**
 * @param {Curve} curve
 * @param {number} weight
 * @param {{average: number, weight: number}} state
 * @param {number} rows how many of them, from the first
 * @param {Float32Array | null} values where the averages go
 */
function blend(curve, weight, state, rows, values) {
  const bucket = weight ** bucketSize(curve);
  const single = curve.min ? (curve.single ?? curve.length) : 0;
  for (let i = 0; i < rows; i++) {
    const value = curve.value[i];
    if (Number.isFinite(value)) {
      const past = i < single ? bucket : weight;
      state.average = past * state.average + (1 - past) * value;
      state.weight *= past;
      if (values) values[i] = state.average / (1 - state.weight);
    } else if (values) values[i] = value;
  }
}

/**
 * How many points a bucket of the curve stands for, all but the last of which have equally many; 1 where
 * every row is a point.
 *
 * @param {Curve} curve
 */
export function bucketSize(curve) {
  if (!curve.min) return 1;
  const buckets = curve.single ?? curve.length;
  return buckets ? Math.max(1, (curve.points - (curve.length - buckets)) / buckets) : 1;
}

/**
 * The first row whose x is at least `at`.
 *
 * @param {Float64Array} x
 * @param {number} length
 * @param {number} bound
 */
export function firstFrom(x, length, bound) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < bound) low = middle + 1;
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
 * @param {{weight: number, band: boolean, positive: boolean}} isShown
 * @returns {Bounds | null}
 */
export function yBounds(curves, window, isShown) {
  let low = Infinity;
  let high = -Infinity;
  const floor = isShown.positive ? Number.MIN_VALUE : -Infinity;
  for (const curve of curves) {
    const from = firstFrom(curve.x, curve.length, window.low);
    const values = smoothed(curve, isShown.weight);
    const lows = isShown.band && curve.min ? curve.min : values;
    const highs = isShown.band && curve.max ? curve.max : values;
    for (let i = from; i < curve.length && curve.x[i] <= window.high; i++) {
      const curveLow = lows[i];
      const curveHigh = highs[i];
      if (curveLow < low && curveLow >= floor && curveLow !== -Infinity) low = curveLow;
      if (curveHigh > high && curveHigh >= floor && curveHigh !== Infinity) high = curveHigh;
    }
  }
  return low <= high ? { low, high } : null;
}

/**
 * How many curves have values that a logarithmic axis cannot show, and how many have no others.
 *
 * @param {Curve[]} curves
 * @returns {{some: number, all: number}}
 */
export function notPositive(curves) {
  const bounds = { some: 0, all: 0 };
  for (const curve of curves) {
    let [above, below] = [false, false];
    for (let i = 0; i < curve.length && !(above && below); i++) {
      if (curve.value[i] > 0) above = true;
      else if (curve.value[i] <= 0) below = true;
    }
    if (below) bounds.some += 1;
    if (below && !above) bounds.all += 1;
  }
  return bounds;
}

/**
 * The end of a curve, also of one of which this is only a window.
 *
 * @param {Curve} curve
 * @returns {{value: number, x: number, bucket: boolean}} bucket: the value is the mean of a bucket that
 *   begins at x
 */
export function lastOf(curve) {
  const whole = curve.whole ?? curve;
  const end = whole.length - 1;
  if (end < 0) return { value: NaN, x: NaN, bucket: false };
  return {
    value: whole.value[end],
    x: whole.x[end],
    bucket: whole.min !== null && !whole.members && end < (whole.single ?? Infinity),
  };
}

/**
 * What a table beside a chart says of a curve within a window of x, null for all.
 *
 * @param {Curve} curve
 * @param {Bounds | null} window
 * @returns {{min: number, max: number, points: number, exact: boolean}} exact: no bucket crosses the window's
 *   ends
 */
export function summaryOf(curve, window) {
  let [min, max, rows, points] = [Infinity, -Infinity, 0, 0];
  const bucket = bucketSize(curve);
  const from = window ? firstFrom(curve.x, curve.length, window.low) : 0;
  for (let i = from; i < curve.length && !(window && curve.x[i] > window.high); i++) {
    const low = curve.min && !curve.members ? curve.min[i] : curve.value[i];
    const high = curve.max && !curve.members ? curve.max[i] : curve.value[i];
    if (Number.isFinite(low) && low < min) min = low;
    if (Number.isFinite(high) && high > max) max = high;
    rows += 1;
    points += curve.min && i < (curve.single ?? Infinity) ? bucket : 1;
  }
  const all = rows === curve.length;
  return {
    min: min === Infinity ? NaN : min,
    max: max === -Infinity ? NaN : max,
    points: all ? curve.points : Math.round(points),
    exact: all || !curve.min,
  };
}
