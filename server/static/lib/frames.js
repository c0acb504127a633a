/** Drawing in frames: as much in each as leaves it short, so that what was asked for first is seen first and the page answers meanwhile. */

const LONG_MS = 8; // of scripts; the browser then needs about as long for the pixels

/** @type {Set<() => void>} */
const waiting = new Set();
let frame = 0;

/**
 * Call `draw` once in the next frame, or in one of those after it.
 * @param {() => void} draw the same function is not called twice
 */
export function drawSoon(draw) {
  waiting.add(draw);
  frame ||= requestAnimationFrame(drawSome);
}

/** @param {() => void} draw what need not be drawn any more */
export const drawNoMore = (draw) => void waiting.delete(draw);

function drawSome() {
  const end = performance.now() + LONG_MS;
  try {
    for (const draw of waiting) {
      waiting.delete(draw);
      draw();
      if (performance.now() > end) break;
    }
  } finally {
    frame = waiting.size ? requestAnimationFrame(drawSome) : 0; // also where one of them failed
  }
}
