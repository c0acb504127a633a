/**
 * Drawing in frames: as much in each as leaves it short, so that what was asked for first is seen first and
 * the page answers meanwhile.
 */

const LONG_MS = 8; // of scripts; the browser then needs about as long for the pixels

/** @type {Set<() => void>} */
const waiting = new Set();
let frame = 0;
let resting = false;

/**
 * Call `draw` once in the next frame, or in one of those after it.
 * @param {() => void} draw the same function is not called twice
 * @param {{rest?: boolean}} [options] rest: leave the next frame to what was drawn just now
 */
export function drawSoon(draw, { rest = false } = {}) {
  waiting.add(draw);
  resting ||= rest;
  frame ||= requestAnimationFrame(drawSome);
}

/** @param {() => void} draw what need not be drawn any more */
export const drawNoMore = (draw) => void waiting.delete(draw);

function drawSome() {
  const end = performance.now() + LONG_MS;
  const rests = resting;
  resting = false;
  try {
    for (const draw of rests ? [] : waiting) {
      waiting.delete(draw);
      draw();
      if (performance.now() > end) break;
    }
  } finally {
    // Also where one of them failed. After a rest by a task of its own: a browser that is late begins the
    // next frame at once.
    const next = () => requestAnimationFrame(drawSome);
    frame = 0;
    if (waiting.size) frame = rests ? window.setTimeout(next) : next();
  }
}
