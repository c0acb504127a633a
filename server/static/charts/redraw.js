// When a canvas is drawn anew.
import { effect } from "@preact/signals";
import { theme } from "../lib/theme.js";

/**
 * Draws now, and again whenever the host's size or the page's theme changes.
 *
 * @param {HTMLElement} host
 * @param {() => void} draw
 * @returns {() => void} ends it
 */
export function redrawOnChange(host, draw) {
  const sized = new ResizeObserver(draw);
  sized.observe(host);
  const stopTheme = effect(() => {
    void theme.value;
    draw();
  });
  return () => {
    stopTheme();
    sized.disconnect();
  };
}
