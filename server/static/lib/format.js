/** Values as people read them. What is not known is a dash. */

export const NONE = "–";

/**
 * A number in five significant digits; the store's "NaN", "Infinity" and "-Infinity" stay what they are.
 * @param {unknown} value
 * @param {number} [digits]
 */
export function number(value, digits = 5) {
  if (value === null || value === undefined || value === "") return NONE;
  if (typeof value !== "number") return String(value).replace("Infinity", "∞");
  if (!Number.isFinite(value)) return String(value).replace("Infinity", "∞");
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return String(value).replace("-", "−");
  const size = Math.abs(value);
  const text =
    size !== 0 && (size < 1e-4 || size >= 1e9) ? value.toExponential(digits - 1) : value.toPrecision(digits);
  const [mantissa = "", exponent] = text.split("e");
  const short = mantissa.includes(".") ? mantissa.replace(/0+$/, "").replace(/\.$/, "") : mantissa;
  return (exponent === undefined ? short : `${short}e${exponent.replace("+", "")}`).replaceAll("-", "−");
}

/**
 * A param, a tag, or anything else of a record; a whole number with all its digits.
 * @param {unknown} value
 * @returns {string}
 */
export function display(value) {
  if (value === null || value === undefined) return NONE;
  if (typeof value === "bigint" || Number.isSafeInteger(value)) return String(value).replace("-", "−");
  if (typeof value === "number") return number(value, 6);
  if (typeof value === "boolean") return value ? "true" : "false";
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

/**
 * A param's value for people: null is one, such as max_depth: null, and no param is none.
 * @param {unknown} value
 */
export const param = (value) => (value === null ? "null" : display(value));

/**
 * Seconds as `1 h 04 min`, in at most two units.
 * @param {unknown} seconds
 */
export function duration(seconds) {
  if (typeof seconds !== "number" || !Number.isFinite(seconds)) return NONE;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${number(Math.round(seconds * 10) / 10, 3)} s`;
  const whole = Math.round(seconds);
  const [minutes, hours, days] = [
    Math.floor(whole / 60),
    Math.floor(whole / 3600),
    Math.floor(whole / 86400),
  ];
  if (hours === 0) return `${minutes} min ${two(whole % 60)} s`;
  if (days === 0) return `${hours} h ${two(minutes % 60)} min`;
  return `${days} d ${two(hours % 24)} h`;
}

/**
 * An amount of money, as `1,234.50 USD`; of a small one two digits that count.
 * @param {number} value
 * @param {string} currency
 */
export function money(value, currency) {
  const digits =
    value > 0 && value < 0.01
      ? { maximumSignificantDigits: 2 }
      : { minimumFractionDigits: 2, maximumFractionDigits: 2 };
  return `${value.toLocaleString("en", digits)} ${currency}`;
}

/** @param {number} value */
const two = (value) => String(value).padStart(2, "0");

/**
 * Bytes, in powers of 1024 with their everyday names as the command line has them.
 * @param {unknown} bytes
 */
export function size(bytes) {
  if (typeof bytes !== "number") return NONE;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${number(Math.abs(value) < 1000 ? value : Math.round(value), 3)} ${units[unit]}`;
}

/** @typedef {string | number | null | undefined} TimeLike ISO text, or seconds since 1970 */

/** @param {TimeLike} when */
export function date(when) {
  if (when === null || when === undefined || when === "") return null;
  const value = new Date(typeof when === "number" ? when * 1000 : when);
  return Number.isNaN(value.getTime()) ? null : value;
}

/**
 * A time of this place: today's by the clock, others with their day.
 * @param {TimeLike} when
 * @param {Date} [now]
 */
export function time(when, now = new Date()) {
  const value = date(when);
  if (!value) return NONE;
  const clock = `${two(value.getHours())}:${two(value.getMinutes())}`;
  if (value.toDateString() === now.toDateString()) return clock;
  const day = `${value.getFullYear()}-${two(value.getMonth() + 1)}-${two(value.getDate())}`;
  return value.getFullYear() === now.getFullYear() ? `${day.slice(5)} ${clock}` : `${day} ${clock}`;
}

/**
 * The same time to the second.
 * @param {TimeLike} when
 * @param {Date} [now]
 */
export function clock(when, now) {
  const value = date(when);
  return value ? `${time(when, now)}:${two(value.getSeconds())}` : NONE;
}

/**
 * The same time for the title: whole, and in UTC.
 * @param {TimeLike} when
 */
export function timeTitle(when) {
  const value = date(when);
  return value ? `${value.toISOString().slice(0, 19).replace("T", " ")} UTC` : "";
}

/**
 * How long ago, in one unit.
 * @param {TimeLike} when
 * @param {Date} [now]
 */
export function ago(when, now = new Date()) {
  const value = date(when);
  if (!value) return NONE;
  const seconds = (now.getTime() - value.getTime()) / 1000;
  if (seconds < 45) return "just now";
  if (seconds < 3570) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} d ago`;
}

/**
 * A count with its noun: `1 run`, `12 runs`.
 * @param {number} count
 * @param {string} noun
 * @param {string} [plural]
 */
export const counted = (count, noun, plural = `${noun}s`) => `${count} ${count === 1 ? noun : plural}`;

/**
 * A message as a sentence among others.
 * @param {string} text
 */
export function sentence(text) {
  if (!text) return "";
  const end = /[.?!:]$/.test(text) ? "" : ".";
  return text.charAt(0).toUpperCase() + text.slice(1) + end;
}

/**
 * The start of a digest, without its algorithm.
 * @param {unknown} digest
 */
export const shortDigest = (digest) =>
  typeof digest === "string" ? digest.replace("sha256:", "").slice(0, 12) : NONE;
