// The colours that canvases need, from the style sheet; they follow light and dark.

import { effect } from "@preact/signals";
import { theme as pageTheme, token } from "../lib/theme.js";

/**
 * @typedef {{text: string, muted: string, grid: string, surface: string, accent: string, font: string}} Theme
 */

const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';

export const theme = {
  /** @returns {Theme} */
  value() {
    return {
      text: token("--text"),
      muted: token("--muted"),
      grid: token("--line"),
      surface: token("--surface"),
      accent: token("--accent"),
      font: FONT,
    };
  },

  /**
   * @param {() => void} listener called when the colours have changed
   * @returns {() => void} ends it
   */
  subscribe(listener) {
    let first = true;
    return effect(() => {
      void pageTheme.value;
      if (!first) listener();
      first = false;
    });
  },
};
