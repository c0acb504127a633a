// The path builder: curves straight onto uPlot's canvas, at most two points of each for a column of pixels.

import { rowsWithin, smoothed } from "./curves.js";

/**
 * @typedef {import("./curves.js").Curve} Curve
 * @typedef {{colour: string, dash: number[]}} LineStyle
 * @typedef {{low: number, high: number, log: boolean, from: number, to: number}} Scale values low..high lie
 *   at the pixels from..to
 * @typedef {{left: number, top: number, width: number, height: number}} Box in canvas pixels
 * @typedef {{x: Scale, y: Scale, box: Box, ratio: number}} Frame
 * @typedef {{weight: number, band: boolean, style: (run: string) => LineStyle}} Look
 */

const MANY = 50; // curves; with more of them two pixels are a column
const RAW_ALPHA = 0.22;
const BAND_ALPHA = 0.14;

/**
 * Draw the curves; later ones lie above.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Curve[]} curves
 * @param {Frame} frame
 * @param {Look} look
 */
export function drawCurves(context, curves, frame, look) {
  const { box, ratio } = frame;
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.width, box.height);
  context.clip();
  context.lineJoin = "bevel";
  context.lineWidth = lineWidth(curves.length, ratio);
  const wide = curves.length > MANY ? 2 : 1;
  for (const curve of curves) {
    const { colour, dash } = look.style(curve.run);
    context.strokeStyle = context.fillStyle = colour;
    if (look.band && curve.min && curve.max) {
      context.globalAlpha = BAND_ALPHA;
      fillBand(context, curve, frame);
    }
    if (look.weight > 0) {
      context.globalAlpha = RAW_ALPHA;
      strokeValues(context, curve, curve.value, frame, [], wide);
    }
    context.globalAlpha = 1;
    strokeValues(context, curve, smoothed(curve, look.weight), frame, dash, wide);
  }
  context.restore();
}

/**
 * Draw one curve above the rest, which a veil pales.
 *
 * @param {CanvasRenderingContext2D} context of a canvas that lies over the chart's
 * @param {Curve} curve
 * @param {Frame} frame
 * @param {Look} look
 * @param {string} veil
 */
export function drawHighlight(context, curve, frame, look, veil) {
  const { box, ratio } = frame;
  const { colour, dash } = look.style(curve.run);
  context.save();
  context.beginPath();
  context.rect(box.left, box.top, box.width, box.height);
  context.clip();
  context.fillStyle = veil;
  context.globalAlpha = 0.62;
  context.fillRect(box.left, box.top, box.width, box.height);
  context.lineJoin = "bevel";
  context.strokeStyle = context.fillStyle = colour;
  if (look.band && curve.min && curve.max) {
    context.globalAlpha = 2 * BAND_ALPHA;
    fillBand(context, curve, frame);
  }
  if (look.weight > 0) {
    context.globalAlpha = 2 * RAW_ALPHA;
    context.lineWidth = ratio;
    strokeValues(context, curve, curve.value, frame, [], 1);
  }
  context.globalAlpha = 1;
  const values = smoothed(curve, look.weight);
  const [from, to] = rowsWithin(curve, frame.x.low, frame.x.high);
  if (to - from <= FEW) {
    context.lineWidth = 2.25 * ratio;
    strokeValues(context, curve, values, frame, dash, 1);
  } else {
    // A wide line of a noisy curve takes the browser longer than all that lie below it; several of one pixel
    // are as wide, and free.
    const path = new Path2D();
    trace(path, curve, values, frame, null, 1);
    context.lineWidth = 1;
    for (const [right, down] of AROUND) {
      context.setTransform(1, 0, 0, 1, right * ratio, down * ratio);
      context.stroke(path);
    }
  }
  context.restore();
}

const FEW = 150; // rows
const AROUND = [
  [0, 0],
  [0.7, 0],
  [-0.7, 0],
  [0, 0.7],
  [0, -0.7],
];

/**
 * Many lines are drawn thin: they are told apart better, and one pixel is what the canvas draws fastest.
 *
 * @param {number} count
 * @param {number} ratio device pixels of a CSS pixel
 */
function lineWidth(count, ratio) {
  if (count <= 12) return 1.75 * ratio;
  return count <= 30 ? 1.25 * ratio : ratio;
}

/**
 * A value's place in pixels is `slope * value + shift`, or of its logarithm.
 *
 * @param {Scale} scale
 */
export function placing(scale) {
  const low = scale.log ? Math.log10(scale.low) : scale.low;
  const high = scale.log ? Math.log10(scale.high) : scale.high;
  const slope = (scale.to - scale.from) / (high - low || 1);
  return { slope, shift: scale.from - slope * low, log: scale.log };
}

/** @param {{slope: number, shift: number, log: boolean}} place @param {number} value */
export function placed(place, value) {
  return place.slope * (place.log ? Math.log10(value) : value) + place.shift;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Curve} curve
 * @param {Float32Array} values
 * @param {Frame} frame
 * @param {number[]} dash
 * @param {number} wide pixels of a column
 */
function strokeValues(context, curve, values, frame, dash, wide) {
  const [from, to] = rowsWithin(curve, frame.x.low, frame.x.high);
  // Along a noisy line dashes come to nothing and cost more than the line: where points are close, it is
  // broken by its place instead.
  const dense = to - from > frame.box.width / 2;
  context.setLineDash(dense ? [] : dash.map((length) => length * frame.ratio));
  context.beginPath();
  trace(context, curve, values, frame, dense ? maskOf(dash, frame) : null, wide);
  context.stroke();
}

/**
 * Which pixels across have a dash, and which a gap; null: all have the line.
 *
 * @param {number[]} dash
 * @param {Frame} frame
 */
function maskOf(dash, frame) {
  if (!dash.length) return null;
  const mask = new Uint8Array(frame.box.width + 2);
  for (let position = 0, part = 0; position < mask.length; part++) {
    const end = position + Math.max(2, Math.round(1.4 * frame.ratio * dash[part % dash.length]));
    if (part % 2 === 0) mask.fill(1, position, end);
    position = end;
  }
  return mask;
}

/** @typedef {CanvasRenderingContext2D | Path2D} Line */

/**
 * @param {Line} line
 * @param {Curve} curve
 * @param {Float32Array} values
 * @param {Frame} frame
 * @param {Uint8Array | null} mask
 * @param {number} wide
 */
function trace(line, curve, values, frame, mask, wide) {
  const [from, to] = rowsWithin(curve, frame.x.low, frame.x.high);
  if ((to - from) * wide > 2 * frame.box.width) columns(line, curve.x, values, from, to, frame, mask, wide);
  else everyPoint(line, curve.x, values, from, to, frame, mask);
}

/**
 * @param {Line} line
 * @param {Float64Array} x
 * @param {Float32Array} values
 * @param {number} from
 * @param {number} to
 * @param {Frame} frame
 * @param {Uint8Array | null} mask
 */
function everyPoint(line, x, values, from, to, frame, mask) {
  const horizontal = placing(frame.x);
  const vertical = placing(frame.y);
  let open = false;
  let alone = false;
  let px = 0;
  let py = 0;
  for (let i = from; i < to; i++) {
    const y = placed(vertical, values[i]);
    const across = placed(horizontal, x[i]);
    if (Number.isFinite(y) && Number.isFinite(across)) {
      px = across;
      py = y;
      if (open) line.lineTo(px, py);
      else line.moveTo(px, py);
      alone = !open;
      open = true;
      if (mask && mask[Math.round(px - frame.box.left)] === 0) open = alone = false;
    } else {
      if (alone) dot(line, px, py, frame.ratio);
      open = alone = false;
    }
  }
  if (alone) dot(line, px, py, frame.ratio);
}

/**
 * A point without neighbours would be invisible as a line.
 *
 * @param {Line} line
 * @param {number} px
 * @param {number} py
 * @param {number} ratio
 */
function dot(line, px, py, ratio) {
  line.rect(px - ratio, py - ratio, 2 * ratio, 2 * ratio); // stroked: four pixels
}

/**
 * Of the points in one column of pixels the lowest and the highest, in the order in which they come.
 *
 * @param {Line} line
 * @param {Float64Array} x
 * @param {Float32Array} values
 * @param {number} from
 * @param {number} to
 * @param {Frame} frame
 * @param {Uint8Array | null} mask
 * @param {number} wide pixels of a column
 */
function columns(line, x, values, from, to, frame, mask, wide) {
  const horizontal = placing(frame.x);
  const vertical = placing(frame.y);
  const left = Math.round(frame.box.left);
  let column = NaN;
  let low = 0;
  let high = 0;
  let lowAt = -1;
  let highAt = -1;
  let open = false;
  const flush = () => {
    if (lowAt < 0) return;
    if (mask && mask[column - left] === 0) {
      open = false;
      lowAt = highAt = -1;
      return;
    }
    const [first, second] = lowAt <= highAt ? [low, high] : [high, low];
    if (open) line.lineTo(column, first);
    else line.moveTo(column, first);
    if (first !== second || !open) line.lineTo(column, second);
    open = true;
    lowAt = highAt = -1;
  };
  for (let i = from; i < to; i++) {
    const y = placed(vertical, values[i]);
    const pixel = left + wide * Math.round((placed(horizontal, x[i]) - left) / wide);
    if (!Number.isFinite(y) || !Number.isFinite(pixel)) {
      flush();
      open = false;
      continue;
    }
    if (pixel !== column) {
      flush();
      column = pixel;
    }
    if (lowAt < 0 || y < low) [low, lowAt] = [y, i];
    if (highAt < 0 || y > high) [high, highAt] = [y, i];
  }
  flush();
}

/**
 * The range of a bucketed curve: along its highest values and back along its lowest.
 *
 * @param {CanvasRenderingContext2D} context
 * @param {Curve} curve
 * @param {Frame} frame
 */
function fillBand(context, curve, frame) {
  const { min, max } = curve;
  if (!min || !max) return;
  const [from, to] = rowsWithin(curve, frame.x.low, frame.x.high);
  const horizontal = placing(frame.x);
  const vertical = placing(frame.y);
  const within = (/** @type {number} */ value) =>
    Math.max(frame.box.top - 1, Math.min(frame.box.top + frame.box.height + 1, value));
  context.beginPath();
  for (let start = from; start < to;) {
    let end = start;
    while (end < to && min[end] === min[end] && max[end] === max[end]) end++;
    for (let i = start; i < end; i++)
      context.lineTo(placed(horizontal, curve.x[i]), within(placed(vertical, max[i])));
    for (let i = end - 1; i >= start; i--) {
      const low = min[i] > 0 || !frame.y.log ? placed(vertical, min[i]) : Infinity;
      context.lineTo(placed(horizontal, curve.x[i]), within(low));
    }
    context.closePath();
    start = Math.max(end, start) + 1;
    if (start < to) context.moveTo(placed(horizontal, curve.x[start]), within(placed(vertical, max[start])));
  }
  context.fill();
}
