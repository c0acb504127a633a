// One curve for a group of runs: the mean of their curves, with the standard deviation as its band.

/** @typedef {import("./curves.js").Curve} Curve */

const MAX_PLACES = 1000;
const MAX_ROWS_READ = 20_000; // of all curves' rows, to find the places

/**
 * The mean of curves at common places of x, and mean ± standard deviation (of a sample) as its range. A curve
 * counts from its first point to its last, between its points by the line that joins them; where it is not
 * finite, it does not count.
 *
 * @param {string} id of the group
 * @param {Curve[]} curves of one metric, at least one
 * @returns {Curve}
 */
export function groupCurve(id, curves) {
  const x = placesOf(curves);
  const [count, mean, squares] = [
    new Float64Array(x.length),
    new Float64Array(x.length),
    new Float64Array(x.length),
  ];
  for (const curve of curves) {
    let row = 0;
    for (let index = 0; index < x.length; index++) {
      if (x[index] < curve.x[0] || x[index] > curve.x[curve.length - 1]) continue;
      while (row < curve.length - 2 && curve.x[row + 1] <= x[index]) row++;
      const value = between(curve, row, x[index]);
      if (!Number.isFinite(value)) continue;
      count[index] += 1; // Welford's way: a sum of squares would lose the digits of what differs
      const away = value - mean[index];
      mean[index] += away / count[index];
      squares[index] += away * (value - mean[index]);
    }
  }
  const [value, min, max] = [
    new Float32Array(x.length),
    new Float32Array(x.length),
    new Float32Array(x.length),
  ];
  for (let index = 0; index < x.length; index++) {
    const deviation = count[index] > 1 ? Math.sqrt(squares[index] / (count[index] - 1)) : 0;
    value[index] = count[index] ? mean[index] : NaN;
    [min[index], max[index]] = [value[index] - deviation, value[index] + deviation];
  }
  const points = Math.max(x.length, ...curves.map((curve) => curve.points));
  return {
    run: id,
    key: curves[0].key,
    length: x.length,
    points,
    x,
    value,
    min,
    max,
    members: curves.length,
  };
}

/**
 * The value at a place within a curve.
 *
 * @param {Curve} curve
 * @param {number} row the last one at or before the place, but not the curve's last
 * @param {number} x
 */
function between(curve, row, x) {
  const next = Math.min(row + 1, curve.length - 1);
  const [x0, x1] = [curve.x[row], curve.x[next]];
  if (x === x0) return curve.value[row];
  if (x === x1) return curve.value[next];
  return curve.value[row] + ((x - x0) / (x1 - x0)) * (curve.value[next] - curve.value[row]);
}

/**
 * Places of x where some curve has a row, ascending; of many some, with the first and the last.
 *
 * @param {Curve[]} curves
 */
function placesOf(curves) {
  const placesPerCurve = Math.max(2, Math.floor(MAX_ROWS_READ / curves.length));
  const all = Float64Array.from(
    curves.flatMap((curve) => [...thinned(curve.x.subarray(0, curve.length), placesPerCurve)]),
  ).sort();
  let count = 0;
  for (const place of all) if (count === 0 || place !== all[count - 1]) all[count++] = place;
  return thinned(all.subarray(0, count), MAX_PLACES);
}

/** @param {Float64Array} places @param {number} limit */
function thinned(places, limit) {
  if (places.length <= limit) return places;
  return Float64Array.from(
    { length: limit },
    (_, index) => places[Math.round((index * (places.length - 1)) / (limit - 1))],
  );
}
