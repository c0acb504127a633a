/** How the axes of a chart are labelled. */
import uPlot from "uplot";
import { axisBytes, axisTime, byteSplits, logSplits } from "./ticks.js";

/** @param {uPlot} _ @param {number[]} splits */
export function clockLabels(_, splits) {
  const step = splits.length > 1 ? splits[1] - splits[0] : 60;
  return splits.map((value, index) => axisTime(value, step, index === 0 ? null : splits[index - 1]));
}

/** As wide as the vertical axis's labels need. @param {uPlot} _ @param {string[] | null} values */
export function widthOf(_, values) {
  const longest = Math.max(4, ...(values ?? []).map((value) => value?.length ?? 0));
  return 18 + 6.6 * longest;
}

/**
 * How an axis is labelled.
 *
 * @param {(value: number, step: number) => string} text
 * @param {boolean} log
 * @param {number} space CSS pixels between ticks
 */
export function labels(text, log, space) {
  const values = (/** @type {uPlot} */ _, /** @type {number[]} */ splits) => {
    const step = splits.length > 1 && !log ? splits[1] - splits[0] : 0;
    return splits.map((value) => text(value, step));
  };
  if (!log) return { values };
  const splits = (
    /** @type {uPlot} */ plot,
    /** @type {number} */ axis,
    /** @type {number} */ low,
    /** @type {number} */ high,
  ) => {
    const length = (axis === 0 ? plot.bbox.width : plot.bbox.height) / uPlot.pxRatio;
    return logSplits(low, high, length / space);
  };
  return { values, splits, filter: (/** @type {uPlot} */ _, /** @type {number[]} */ ticks) => ticks };
}

/**
 * How an axis of bytes is labelled: at round numbers of one of their units.
 *
 * @param {boolean} log
 * @param {number} space CSS pixels between ticks
 * @param {string} per what follows the unit
 */
export function sizes(log, space, per) {
  const values = (/** @type {uPlot} */ _, /** @type {number[]} */ splits) => {
    const step = splits.length > 1 && !log ? splits[1] - splits[0] : 0;
    return splits.map((value) => axisBytes(value, step, log ? value : splits[splits.length - 1]) + per);
  };
  const splits = (
    /** @type {uPlot} */ plot,
    /** @type {number} */ __,
    /** @type {number} */ low,
    /** @type {number} */ high,
  ) => byteSplits(low, high, plot.bbox.height / uPlot.pxRatio / space, log);
  return { values, splits, filter: (/** @type {uPlot} */ _, /** @type {number[]} */ ticks) => ticks };
}
