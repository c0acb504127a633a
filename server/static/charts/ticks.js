// Labels of axes.

/**
 * A number on an axis whose ticks are `step` apart (0: on a logarithmic one).
 *
 * @param {number} value
 * @param {number} step
 */
export function axisNumber(value, step) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e15 || (size < 1e-4 && (step === 0 || step < 1e-4))) return exponent(value);
  for (const [unit, name] of UNITS) {
    if (size >= unit * 10 ** (unit === 1e3 ? 1 : 0)) return trimmed(value / unit, step / unit) + name;
  }
  return trimmed(value, step);
}

/** @type {[number, string][]} */
const UNITS = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** @param {number} value @param {number} step */
function trimmed(value, step) {
  let digits = 6;
  if (step > 0) {
    const needed = Math.ceil(-Math.log10(step) - 1e-9) + (isCoarse(step) ? 0 : 1);
    digits = Math.max(0, Math.min(8, needed));
  }
  const text = value.toFixed(digits);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** @param {number} step whether its first digit says all of it */
function isCoarse(step) {
  const mantissa = step / 10 ** Math.floor(Math.log10(step) + 1e-9);
  return Math.abs(mantissa - Math.round(mantissa)) < 1e-6;
}

/** @param {number} value */
function exponent(value) {
  return value
    .toExponential(2)
    .replace(/\.?0+e/, "e")
    .replace("e+", "e");
}

/** @type {[number, string][]} */
const SPANS = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
];

/**
 * Seconds on an axis, in the largest unit that divides them well.
 *
 * @param {number} seconds
 */
export function axisSpan(seconds) {
  const size = Math.abs(seconds);
  for (const [unit, name] of SPANS) {
    if (size >= unit) return `${+(seconds / unit).toFixed(2)} ${name}`;
  }
  return `${+seconds.toPrecision(3)} s`;
}

/**
 * Where a logarithmic axis has its ticks: at powers of ten, with 2 and 5 between where there are few, evenly
 * where there is hardly one.
 *
 * @param {number} low above 0
 * @param {number} high
 * @param {number} limit ticks
 * @returns {number[]}
 */
export function logSplits(low, high, limit) {
  const decades = Math.log10(high / low);
  if (!(decades > 0) || !Number.isFinite(decades)) return [low];
  if (decades < 0.9) return evenSplits(low, high, limit);
  const stride = Math.max(1, Math.ceil(decades / Math.max(2, limit)));
  const between = decades * 3 <= limit ? [1, 2, 5] : [1];
  const splits = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    if (power % stride) continue;
    for (const first of between) {
      const value = Number(`${first}e${power}`);
      if (value >= low && value <= high) splits.push(value);
    }
  }
  return splits.length > 1 ? splits : evenSplits(low, high, limit);
}

/**
 * Ticks at multiples of 1, 2 or 5 times a power of ten.
 *
 * @param {number} low
 * @param {number} high
 * @param {number} limit
 * @returns {number[]}
 */
export function evenSplits(low, high, limit) {
  const rough = (high - low) / Math.max(1, limit);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough) ?? 10);
  const splits = [];
  for (let multiple = Math.ceil(low / step - 1e-9); multiple * step <= high * (1 + 1e-12); multiple++)
    splits.push(Number((multiple * step).toPrecision(12)));
  return splits;
}

const BYTES = ["B", "kB", "MB", "GB", "TB"];

/** Of the unit that a number of bytes is written in, the power of 1024. @param {number} bytes */
const powerOf = (bytes) =>
  Math.min(BYTES.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(Math.abs(bytes), 1)) / 10 + 1e-9)));

/**
 * Bytes on an axis, in powers of 1024 with their everyday names, as everywhere else.
 *
 * @param {number} value
 * @param {number} step
 * @param {number} largest whose unit all have
 */
export function axisBytes(value, step, largest) {
  const power = powerOf(largest);
  return value === 0 ? "0" : `${trimmed(value / 1024 ** power, step / 1024 ** power)} ${BYTES[power]}`;
}

/**
 * Ticks at round numbers of the unit that the largest value has.
 *
 * @param {number} low bytes
 * @param {number} high
 * @param {number} limit
 * @param {boolean} log
 */
export function byteSplits(low, high, limit, log) {
  const unit = 1024 ** powerOf(high);
  return (log ? logSplits(low / unit, high / unit, limit) : evenSplits(low / unit, high / unit, limit)).map(
    (value) => value * unit,
  );
}

/**
 * A time of this place on an axis: by the clock, with its day where that is another one than the tick's
 * before.
 *
 * @param {number} seconds since 1970
 * @param {number} step between ticks
 * @param {number | null} before
 */
export function axisTime(seconds, step, before) {
  const time = new Date(1000 * seconds);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const day = `${two(time.getMonth() + 1)}-${two(time.getDate())}`;
  if (step >= 86_400) return day;
  if (before !== null && new Date(1000 * before).toDateString() !== time.toDateString()) return day;
  const clock = `${two(time.getHours())}:${two(time.getMinutes())}`;
  if (step >= 60) return clock;
  const rest = seconds % 60;
  if (step >= 1) return `${clock}:${two(Math.floor(rest))}`;
  return `:${rest.toFixed(step >= 0.1 ? 1 : 2)}`;
}
