// A chart of curves: uPlot gives axes, scales, cursor and the drag; the curves are drawn by our own path
// builder.

import uPlot from "uplot";
import { valueAt } from "./axis.js";
import { clockLabels, labels, sizes, widthOf } from "./axis-labels.js";
import { firstFrom, smoothed, xBounds, yBounds } from "./curves.js";
import { drawCurves, drawHighlight, placed, placing } from "./draw-curves.js";
import { onPinch } from "./pinch.js";
import { theme } from "./theme.js";
import { axisNumber, axisSpan } from "./ticks.js";

/**
 * @typedef {import("./curves.js").Curve} Curve
 * @typedef {import("./curves.js").Bounds} Bounds
 * @typedef {import("./draw-curves.js").LineStyle} LineStyle
 * @typedef {import("./draw-curves.js").Frame} Frame
 *
 * @typedef {object} ChartState
 * @property {Curve[]} curves
 * @property {(run: string) => LineStyle} style
 * @property {"step" | "time" | "relative"} x
 * @property {boolean} logX
 * @property {boolean} logY
 * @property {string} [unit] of the values: of "bytes" and "bytes/s" the axis shows kB, MB and so on
 * @property {number} weight of the smoothing, 0 for none
 * @property {boolean} band
 * @property {Bounds | null} window of x, null for all
 * @property {Bounds | null} yWindow of the values, null for all that are within x
 *
 * @typedef {{run: string, curve: Curve, row: number, left: number, top: number, plot: number}} Hit
 *
 * @typedef {object} ChartEvents
 * @property {(window: Bounds | null, yWindow: Bounds | null) => void} onZoom the user chose windows of x and
 *   y, null for all
 * @property {(hit: Hit | null) => void} onHover the curve nearest to the pointer
 */

const NEAR = 48;
const DRAG = 6;

export class LineChart {
  /**
   * @param {HTMLElement} host
   * @param {ChartState} state
   * @param {ChartEvents} events
   */
  constructor(host, state, events) {
    this.host = host;
    this.state = state;
    this.events = events;
    /** @type {string | null} */
    this.highlighted = null;
    this.overlay = document.createElement("canvas");
    this.overlay.className = "chart-overlay";
    this.overlay.setAttribute("aria-hidden", "true");
    this.plot = this.#build();
    this.stopTheme = theme.subscribe(() => this.#rebuild());
  }

  /**
   * Show another state. Only what changed is made anew.
   *
   * @param {ChartState} state
   */
  update(state) {
    const old = this.state;
    this.state = state;
    if (old.x !== state.x || old.logX !== state.logX || old.logY !== state.logY) this.#rebuild();
    else this.redraw();
  }

  /** Draw what the curves are now: they were appended to. */
  redraw() {
    this.#rescale(this.plot);
    this.#drawOverlay();
  }

  /** @param {number} width @param {number} height */
  resize(width, height) {
    if (width === this.plot.width && height === this.plot.height) return;
    this.plot.setSize({ width, height });
    this.#drawOverlay();
  }

  /** @param {string | null} run */
  highlight(run) {
    if (run === this.highlighted) return;
    this.highlighted = run;
    this.#drawOverlay();
  }

  destroy() {
    this.stopTheme();
    this.plot.destroy();
  }

  #rebuild() {
    this.plot.destroy();
    this.plot = this.#build();
    this.#drawOverlay();
  }

  /** @returns {uPlot} */
  #build() {
    const { state } = this;
    const colours = theme.value();
    const tick = state.x === "relative" ? axisSpan : axisNumber;
    /** @type {Partial<uPlot.Axis>} */
    const axis = {
      stroke: colours.muted,
      font: colours.font,
      grid: { stroke: colours.grid, width: 1 },
      ticks: { stroke: colours.grid, width: 1, size: 4 },
    };
    /** @type {any} */
    const options = {
      mode: 2,
      width: Math.max(80, this.host.clientWidth),
      height: Math.max(80, this.host.clientHeight),
      padding: [8, 10, 0, 0],
      legend: { show: false },
      scales: {
        x: {
          time: state.x === "time",
          distr: state.logX && state.x !== "time" ? 3 : 1,
          auto: false,
          range: () => this.#xRange(),
        },
        y: { distr: state.logY ? 3 : 1, auto: false, range: () => this.#yRange() },
      },
      axes: [
        {
          ...axis,
          size: 26,
          gap: 4,
          space: 56,
          ...(state.x === "time" ? { values: clockLabels } : labels(tick, state.logX, 64)),
        },
        {
          ...axis,
          size: widthOf,
          gap: 4,
          space: 30,
          ...(state.unit?.startsWith("bytes")
            ? sizes(state.logY, 32, state.unit.slice(5))
            : labels(axisNumber, state.logY, 32)),
        },
      ],
      // One series stands for all curves: uPlot asks its path builder, which draws onto the canvas itself and
      // gives no path back.
      series: [
        {},
        {
          facets: [{ scale: "x" }, { scale: "y" }],
          paths: (/** @type {uPlot} */ plot) => this.#draw(plot),
          points: { show: false },
        },
      ],
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: true, uni: 40, dist: DRAG, setScale: false },
        bind: { dblclick: () => () => this.#resetZoom() },
      },
      hooks: {
        setCursor: [(/** @type {uPlot} */ plot) => this.#hover(plot)],
        setSelect: [(/** @type {uPlot} */ plot) => this.#select(plot)],
      },
    };
    // Drawn before this returns, not in a microtask: whoever builds several sees how long each takes.
    const plot = new uPlot(options, /** @type {any} */ ([null, [[0], [0]]]), (made, init) => {
      this.host.append(made.root);
      made.batch(init);
    });
    plot.ctx.canvas.setAttribute("aria-hidden", "true");
    plot.over.before(this.overlay);
    plot.over.addEventListener("mouseleave", () => this.events.onHover(null));
    this.#listenToFingers(plot);
    return plot;
  }

  /** @param {uPlot} plot */
  #rescale(plot) {
    // All in one batch, or the curves are drawn once for the scales and once for the axes.
    plot.batch(() => {
      const [low, high] = this.#xRange();
      plot.setScale("x", { min: low, max: high });
      const [bottom, top] = this.#yRange();
      plot.setScale("y", { min: bottom, max: top });
      plot.redraw(false, true);
    });
  }

  /** @returns {[number, number]} */
  #xRange() {
    const { window, logX, x } = this.state;
    const log = logX && x !== "time";
    if (window) return [log && window.low <= 0 ? 0.5 : window.low, window.high];
    return this.#wholeX();
  }

  /** @returns {[number, number]} */
  #wholeX() {
    const { curves, logX, x } = this.state;
    const log = logX && x !== "time";
    const bounds = xBounds(curves, log);
    if (!bounds && log) return [1, 10];
    if (!bounds) return x === "time" ? [Date.now() / 1000 - 60, Date.now() / 1000] : [0, 1];
    if (bounds.low === bounds.high)
      return log ? [bounds.low / 2, bounds.low * 2] : [bounds.low - 0.5, bounds.high + 0.5];
    return [bounds.low, bounds.high];
  }

  /** @returns {[number, number]} */
  #yRange() {
    const { curves, weight, band, logY, yWindow } = this.state;
    if (yWindow && !(logY && yWindow.low <= 0)) return [yWindow.low, yWindow.high];
    const [low, high] = this.#xRange();
    const bounds = yBounds(curves, { low, high }, { weight, band, positive: logY });
    if (!bounds) return logY ? [0.1, 10] : [0, 1];
    if (logY) {
      const [lowPower, highPower] = spread(Math.log10(bounds.low), Math.log10(bounds.high), 0.5);
      return [10 ** lowPower, 10 ** highPower];
    }
    return spread(bounds.low, bounds.high, Math.abs(bounds.low) / 10 || 0.5);
  }

  /** @param {uPlot} plot @returns {Frame} */
  #frame(plot) {
    const { left, top, width, height } = plot.bbox;
    const { x, y } = plot.scales;
    const ends = (/** @type {uPlot.Scale} */ scale) => ({
      low: scale.min ?? 0,
      high: scale.max ?? 1,
      log: scale.distr === 3,
    });
    return {
      x: { ...ends(x), from: left, to: left + width },
      y: { ...ends(y), from: top + height, to: top },
      box: { left, top, width, height },
      ratio: uPlot.pxRatio,
    };
  }

  /** @param {uPlot} plot */
  #draw(plot) {
    const { curves, weight, band, style } = this.state;
    drawCurves(plot.ctx, curves, this.#frame(plot), { weight, band, style });
    return null;
  }

  #drawOverlay() {
    const { overlay, plot } = this;
    const curve =
      this.highlighted === null
        ? undefined
        : this.state.curves.find((curve) => curve.run === this.highlighted);
    overlay.hidden = !curve;
    if (!curve) return;
    const { canvas } = plot.ctx;
    if (overlay.width !== canvas.width || overlay.height !== canvas.height)
      [overlay.width, overlay.height] = [canvas.width, canvas.height];
    const context = /** @type {CanvasRenderingContext2D} */ (overlay.getContext("2d"));
    context.clearRect(0, 0, overlay.width, overlay.height);
    const { weight, band, style } = this.state;
    drawHighlight(context, curve, this.#frame(plot), { weight, band, style }, theme.value().surface);
  }

  /** @param {uPlot} plot */
  #hover(plot) {
    const { left, top } = plot.cursor;
    if (left === undefined || top === undefined || left < 0 || top < 0) return;
    const dragging = plot.select.width > 0 || plot.select.height > 0;
    const hit = dragging ? null : this.nearest(left, top);
    this.highlight(hit?.run ?? null); // at once; the other charts follow
    this.events.onHover(hit);
  }

  /**
   * The curve that passes nearest, up or down, to a place of the plotting area.
   *
   * @param {number} left in CSS pixels
   * @param {number} top
   * @returns {Hit | null}
   */
  nearest(left, top) {
    const { plot, state } = this;
    const frame = this.#frame(plot);
    const { ratio, box } = frame;
    const [px, py] = [box.left + left * ratio, box.top + top * ratio];
    const horizontal = placing(frame.x);
    const vertical = placing(frame.y);
    const position = plot.posToVal(left, "x");
    /** @type {Hit | null} */
    let best = null;
    let nearest = NEAR * ratio;
    for (const curve of state.curves) {
      if (curve.length === 0) continue;
      const values = smoothed(curve, state.weight);
      const after = Math.min(firstFrom(curve.x, curve.length, position), curve.length - 1);
      const before = Math.max(0, after - 1);
      const [x0, x1] = [placed(horizontal, curve.x[before]), placed(horizontal, curve.x[after])];
      const [y0, y1] = [placed(vertical, values[before]), placed(vertical, values[after])];
      const share = x1 > x0 ? Math.max(0, Math.min(1, (px - x0) / (x1 - x0))) : 1;
      const y = Number.isFinite(y0) ? y0 + share * (y1 - y0) : y1;
      const distance = Math.hypot(y - py, Math.max(0, px - x1, x0 - px));
      if (distance < nearest) {
        nearest = distance;
        const row = share < 0.5 ? before : after;
        best = {
          run: curve.run,
          curve,
          row,
          left: (placed(horizontal, curve.x[row]) - box.left) / ratio,
          top: (placed(vertical, values[row]) - box.top) / ratio,
          plot: box.left / ratio,
        };
      }
    }
    return best;
  }

  /** @param {uPlot} plot */
  #select(plot) {
    const { left, top, width, height } = plot.select;
    if (width < DRAG && height < DRAG) return;
    const along = width > 0 && width < plot.over.clientWidth - 1;
    const upright = height > 0 && height < plot.over.clientHeight - 1;
    const { window, yWindow } = this.state;
    const between = (
      /** @type {number} */ low,
      /** @type {number} */ high,
      /** @type {"x" | "y"} */ scale,
    ) => ({
      low: short(plot.posToVal(low, scale)),
      high: short(plot.posToVal(high, scale)),
    });
    this.state = {
      ...this.state,
      window: along ? between(left, left + width, "x") : window,
      yWindow: upright ? between(top + height, top, "y") : yWindow,
    };
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.redraw();
    if (along || upright) this.events.onZoom(this.state.window, this.state.yWindow);
  }

  /** @param {uPlot} plot */
  #listenToFingers(plot) {
    let from = this.#frame(plot).x;
    onPinch(plot.over, {
      begin: () => {
        from = this.#frame(plot).x;
        this.highlight(null);
        this.events.onHover(null);
      },
      move: (scale, shift) => {
        const [low, high] = [-shift / scale, (1 - shift) / scale].map((share) => short(valueAt(from, share)));
        const [start, end] = this.#wholeX();
        const window =
          low <= start && high >= end ? null : { low: Math.max(low, start), high: Math.min(high, end) };
        if (window && window.low >= window.high) return; // all of it lies beyond the ends
        this.state = { ...this.state, window };
        this.redraw();
      },
      end: () => this.events.onZoom(this.state.window, this.state.yWindow),
    });
  }

  #resetZoom() {
    this.update({ ...this.state, window: null, yWindow: null });
    this.events.onZoom(null, null);
  }
}

/** As precise as a link has to be. @param {number} value */
const short = (value) => Number(value.toPrecision(10));

/**
 * @param {number} low
 * @param {number} high
 * @param {number} minimum half of the range where low and high are the same
 * @returns {[number, number]}
 */
function spread(low, high, minimum) {
  if (low === high) return [low - minimum, high + minimum];
  const margin = (high - low) * 0.05;
  return [low - margin, high + margin];
}
