/**
 * How wide the runs are beside the panels, as it was chosen in this browser. It imports nothing:
 * first-curves.js asks it before the page is there. compare.css has the same bounds.
 */
const KEY = "halving.side";
export const MIN_WIDTH = 300;
const OTHERS = 320; // px that the panels keep

/** The width that is chosen, in px; null where none is. */
export function chosenWidth() {
  try {
    return Number(localStorage.getItem(KEY)) || null;
  } catch {
    return null; // a browser without storage
  }
}

/** @param {number | null} width in px; null for the one of the style sheet */
export function keepWidth(width) {
  try {
    if (width === null) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, String(width));
  } catch {
    // Without storage it holds until the page is left.
  }
}

/** The most that the side may take of a window. @param {number} window in px */
export const mostOf = (window) => Math.max(MIN_WIDTH, window - OTHERS);

/** The side's width in a window of so many px. @param {number} window */
export const widthIn = (window) =>
  Math.min(
    mostOf(window),
    Math.max(MIN_WIDTH, chosenWidth() ?? Math.min(0.34 * window, Math.max(440, 0.3 * window))),
  );
