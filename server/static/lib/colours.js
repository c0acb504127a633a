/**
 * Colours of runs: by id, and no two alike on the same charts; told apart in both themes (each has a contrast
 * of 3 or more with its background), and by dashes, too.
 */
import { signal } from "@preact/signals";
import { theme } from "./theme.js";

/** @type {{light: readonly string[], dark: readonly string[]}} */
export const PALETTE = {
  light: [
    "#2f6bdb",
    "#c4520f",
    "#178a4c",
    "#c62f59",
    "#7d4bd0",
    "#0b8494",
    "#946c00",
    "#b23a9f",
    "#4d7c0f",
    "#a0522d",
    "#4a6078",
    "#d1382a",
  ],
  dark: [
    "#6ea8ff",
    "#ff9d57",
    "#4fd18b",
    "#ff7d9d",
    "#b493ff",
    "#3fd0df",
    "#e2b93b",
    "#f08be0",
    "#a6d64a",
    "#d99f78",
    "#a3b8cf",
    "#ff8577",
  ],
};

/** Line patterns for canvases, in CSS pixels; the first is a whole line. */
export const DASHES = /** @type {readonly (readonly number[])[]} */ ([[], [7, 3], [2, 3], [9, 3, 2, 3]]);

/** @param {string} text */
function hash(text) {
  let value = 2166136261;
  for (let index = 0; index < text.length; index += 1)
    value = Math.imul(value ^ text.charCodeAt(index), 16777619);
  value ^= value >>> 15;
  return Math.imul(value, 2246822519) >>> 0;
}

const STYLES = PALETTE.light.length * DASHES.length;

/** What lines have worn so far, by id; of those that are on the charts now no two wear the same. */
const worn = signal(/** @type {ReadonlyMap<string, number>} */ (new Map()));
/** Which are on the charts now. @type {ReadonlySet<string>} */
let dressed = new Set();

/**
 * Give the lines on the charts styles of their own, as far as there are enough: the style that a line had
 * before, else its own by its id, else a free one of the least used colours. Showing or hiding other lines
 * changes no style; that of a hidden line is kept for it until another one needs it.
 *
 * @param {readonly string[]} ids
 */
export function dress(ids) {
  const next = new Map(worn.peek());
  const taken = new Set();
  const perColour = new Array(PALETTE.light.length).fill(0);
  const wear = (/** @type {string} */ id, /** @type {number} */ style) => {
    next.set(id, style);
    taken.add(style);
    perColour[style % perColour.length] += 1;
  };
  const without = (
    /** @type {readonly string[]} */ some,
    /** @type {(id: string) => number | undefined} */ wish,
    limit = Infinity,
  ) =>
    some.filter((id) => {
      const style = wish(id);
      if (style === undefined || taken.has(style) || perColour[style % perColour.length] >= limit)
        return true;
      wear(id, style);
      return false;
    });
  // Those that are on the charts keep theirs, and only then others wish; by id, so that it is the same in
  // whatever order runs come.
  let left = without([...ids].sort(), (id) => (dressed.has(id) ? worn.peek().get(id) : undefined));
  left = without(left, (id) => worn.peek().get(id));
  // Few lines have a colour of their own, not just a dash.
  left = without(left, styleNumber, Math.ceil(ids.length / perColour.length));
  for (const id of left)
    wear(id, taken.size < STYLES ? freeStyle(styleNumber(id), taken, perColour) : styleNumber(id));
  dressed = new Set(ids);
  if (ids.some((id) => worn.peek().get(id) !== next.get(id))) worn.value = next;
}

/** @param {string} id */
const styleNumber = (id) => hash(id) % STYLES;

/**
 * The next free style of the colours that the fewest wear.
 * @param {number} from
 * @param {ReadonlySet<number>} taken
 * @param {readonly number[]} perColour
 */
function freeStyle(from, taken, perColour) {
  let [best, fewest] = [from, Infinity];
  for (let step = 1; step < STYLES; step += 1) {
    const style = (from + step) % STYLES;
    const wearers = perColour[style % perColour.length] ?? 0;
    if (!taken.has(style) && wearers < fewest) [best, fewest] = [style, wearers];
  }
  return best;
}

/**
 * What a line looks like, in tables as on charts.
 * @param {string} id of a run `PROJECT/RUN`, or of a group
 * @returns {{index: number, dash: readonly number[]}} index: of the palette
 */
export function styleOf(id) {
  const style = worn.value.get(id) ?? styleNumber(id);
  return {
    index: style % PALETTE.light.length,
    dash: DASHES[Math.floor(style / PALETTE.light.length)] ?? [],
  };
}

/**
 * A line's colour in the theme that is shown.
 * @param {string} id
 */
export const colourOf = (id) =>
  PALETTE[theme.value === "dark" ? "dark" : "light"][styleOf(id).index] ?? "#888";
