/** Colours for numbers, from low to high; each step is told apart from the background in both themes. */
import { theme } from "../lib/theme.js";

const STOPS = {
  light: ["#1f3fae", "#7a3fc0", "#c93b7c", "#d9681d"],
  dark: ["#5b8cff", "#b083ff", "#ff86ad", "#ffc864"],
};
export const SHADES = 24;

/** @param {string} colour */
const parts = (colour) => [1, 3, 5].map((index) => Number.parseInt(colour.slice(index, index + 2), 16));

/**
 * The shade of a share of the range.
 * @param {number} share 0 to 1
 * @returns {string}
 */
export function shade(share) {
  const stops = STOPS[theme.value === "dark" ? "dark" : "light"];
  const position = Math.max(0, Math.min(1, share)) * (stops.length - 1);
  const below = Math.min(stops.length - 2, Math.floor(position));
  const [low, high] = [parts(stops[below] ?? ""), parts(stops[below + 1] ?? "")];
  const mixed = low.map((value, index) =>
    Math.round(value + (position - below) * ((high[index] ?? 0) - value)),
  );
  return `rgb(${mixed.join(" ")})`;
}

/** All shades from low to high, for drawing by batches of one colour. */
export const shades = () => Array.from({ length: SHADES }, (_, index) => shade(index / (SHADES - 1)));
