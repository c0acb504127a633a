/** Colours of runs: stable by id, told apart in both themes (each has a contrast of 3 or more with its background), and by dashes, too. */
import { theme } from "./theme.js";

/** @type {{light: readonly string[], dark: readonly string[]}} */
export const PALETTE = {
  light: ["#2f6bdb", "#c4520f", "#178a4c", "#c62f59", "#7d4bd0", "#0b8494", "#946c00", "#b23a9f", "#4d7c0f", "#a0522d", "#4a6078", "#d1382a"],
  dark: ["#6ea8ff", "#ff9d57", "#4fd18b", "#ff7d9d", "#b493ff", "#3fd0df", "#e2b93b", "#f08be0", "#a6d64a", "#d99f78", "#a3b8cf", "#ff8577"],
};

/** Line patterns for canvases, in CSS pixels; the first is a whole line. */
export const DASHES = /** @type {readonly (readonly number[])[]} */ ([[], [7, 3], [2, 3], [9, 3, 2, 3]]);

/** @param {string} text */
function hash(text) {
  let value = 2166136261;
  for (let index = 0; index < text.length; index += 1) value = Math.imul(value ^ text.charCodeAt(index), 16777619);
  value ^= value >>> 15;
  return Math.imul(value, 2246822519) >>> 0;
}

/**
 * What a run looks like, on every page and for everybody.
 * @param {string} id `PROJECT/RUN`
 * @returns {{index: number, dash: readonly number[]}} index: of the palette
 */
export function styleOf(id) {
  const value = hash(id);
  const index = value % PALETTE.light.length;
  return { index, dash: DASHES[Math.floor(value / PALETTE.light.length) % DASHES.length] ?? [] };
}

/**
 * A run's colour in the theme that is shown.
 * @param {string} id
 */
export const colourOf = (id) => PALETTE[theme.value === "dark" ? "dark" : "light"][styleOf(id).index] ?? "#888";
