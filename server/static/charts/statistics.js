/** What the page computes of runs by itself. */

/**
 * Ranks from 1; equal values share the mean of theirs.
 * @param {readonly number[]} values
 * @returns {number[]}
 */
export function ranks(values) {
  const order = values
    .map((value, index) => ({ value, index }))
    .sort((left, right) => left.value - right.value);
  const rankOf = new Array(values.length).fill(0);
  for (let from = 0; from < order.length;) {
    let to = from;
    while (to < order.length && order[to]?.value === order[from]?.value) to += 1;
    for (const { index } of order.slice(from, to)) rankOf[index] = (from + 1 + to) / 2;
    from = to;
  }
  return rankOf;
}

/**
 * Spearman's rank correlation: 1 where one grows whenever the other does, -1 where it falls. Only pairs of
 * finite numbers count.
 * @param {readonly (readonly [unknown, unknown])[]} pairs
 * @returns {{rho: number, count: number}} rho: NaN with fewer than three pairs, or where one side is always
 *   the same
 */
export function rankCorrelation(pairs) {
  const finite = pairs.filter(([left, right]) => Number.isFinite(left) && Number.isFinite(right));
  const count = finite.length;
  if (count < 3) return { rho: Number.NaN, count };
  const [x, y] = [ranks(finite.map((pair) => Number(pair[0]))), ranks(finite.map((pair) => Number(pair[1])))];
  const mean = (count + 1) / 2;
  let [xy, xx, yy] = [0, 0, 0];
  x.forEach((rank, index) => {
    const [dx, dy] = [rank - mean, (y[index] ?? 0) - mean];
    xy += dx * dy;
    xx += dx * dx;
    yy += dy * dy;
  });
  return { rho: xx && yy ? xy / Math.sqrt(xx * yy) : Number.NaN, count };
}

/**
 * The share of the variance of the second sides' ranks that lies between the groups of equal first sides
 * (η²). Pairs without a first side, or whose second is no finite number, do not count.
 * @param {readonly (readonly [unknown, unknown])[]} pairs
 * @returns {{share: number, count: number}} share: NaN with fewer than three pairs, or where one side is
 *   always the same
 */
export function etaSquared(pairs) {
  const finite = pairs.filter(
    ([text, value]) => text !== undefined && text !== null && Number.isFinite(value),
  );
  const count = finite.length;
  /** @type {Map<string, {sum: number, count: number}>} */
  const groups = new Map();
  const mean = (count + 1) / 2;
  let all = 0;
  ranks(finite.map((pair) => Number(pair[1]))).forEach((rank, index) => {
    const text = String(finite[index]?.[0]);
    const group = groups.get(text) ?? { sum: 0, count: 0 };
    groups.set(text, { sum: group.sum + rank - mean, count: group.count + 1 });
    all += (rank - mean) ** 2;
  });
  let between = 0;
  for (const group of groups.values()) between += group.sum ** 2 / group.count;
  return { share: count < 3 || groups.size < 2 || !all ? Number.NaN : between / all, count };
}
