/** Parallel coordinates: a line for each run through its params and metrics, on a canvas of our own. */
import { token } from "../lib/theme.js";
import { shareOf, ticksOf } from "./axis.js";
import { onAxis } from "./brush.js";
import { SHADES, shades } from "./ramp.js";
import { redrawOnChange } from "./redraw.js";

/**
 * @typedef {import("./axis.js").Axis} Axis
 * @typedef {{id: string, values: unknown[], share: number | null, inside: boolean}} Line values: one for each
 *   axis; share: of the colours, null where there is none; inside: whether it is within all that is marked
 * @typedef {import("./brush.js").Brush} Brush
 *
 * @typedef {object} ParallelState
 * @property {Axis[]} axes
 * @property {Line[]} lines
 * @property {ReadonlyMap<string, Brush>} brushes by the axis's name
 *
 * @typedef {object} ParallelEvents
 * @property {(axis: Axis, brush: Brush | null, last: boolean) => void} onBrush last: the drag has ended
 * @property {(id: string | null, left: number, top: number) => void} onHover
 */

const TOP = 34;
const BOTTOM = 30;
const SIDE = 56;
const MISSING = 16; // below the axes lie the runs without a value
const GRASP = 16;
const NEAR = 10;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';

export class ParallelCoordinates {
  /**
   * @param {HTMLElement} host
   * @param {ParallelState} state
   * @param {ParallelEvents} events
   */
  constructor(host, state, events) {
    this.host = host;
    this.state = state;
    this.events = events;
    /** @type {string | null} */
    this.highlighted = null;
    this.canvas = layer(host);
    this.overlay = layer(host);
    /** @type {{axis: number, from: number} | null} */
    this.drag = null;
    this.#listen();
    this.stopDrawing = redrawOnChange(host, () => this.draw());
  }

  /** @param {ParallelState} state */
  update(state) {
    this.state = state;
    this.draw();
  }

  /** @param {string | null} id */
  highlight(id) {
    if (id === this.highlighted) return;
    this.highlighted = id;
    this.#drawOverlay();
  }

  destroy() {
    this.stopDrawing();
    this.canvas.remove();
    this.overlay.remove();
  }

  draw() {
    const context = cleared(this.canvas, this.host);
    const { lines } = this.state;
    const colours = shades();
    /** @type {Line[][]} */
    const batches = Array.from({ length: SHADES + 1 }, () => []);
    /** @type {Line[]} */
    const out = [];
    for (const line of lines) {
      if (!line.inside) out.push(line);
      else batches[line.share === null ? SHADES : Math.round(line.share * (SHADES - 1))]?.push(line);
    }
    context.lineJoin = "bevel";
    context.lineWidth = lines.length > 150 ? 1 : 1.4;
    context.globalAlpha = 0.16;
    this.#strokeAll(context, out, token("--line-strong"));
    context.globalAlpha = lines.length > 80 ? 0.65 : 0.85;
    if (lines.length > 400) context.globalAlpha = 0.45;
    batches.forEach((batch, index) => this.#strokeAll(context, batch, colours[index] ?? token("--muted")));
    context.globalAlpha = 1;
    this.#drawAxes(context);
    this.#drawOverlay();
  }

  /** @param {number} index */
  #x(index) {
    const count = this.state.axes.length;
    const width = this.host.clientWidth - 2 * SIDE;
    return count < 2 ? SIDE + width / 2 : SIDE + (index * width) / (count - 1);
  }

  #span() {
    return { top: TOP, bottom: this.host.clientHeight - BOTTOM - MISSING };
  }

  /** @param {number | null} share */
  #y(share) {
    const { top, bottom } = this.#span();
    return share === null ? bottom + MISSING : bottom - share * (bottom - top);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Line[]} lines
   * @param {string} colour
   */
  #strokeAll(context, lines, colour) {
    if (!lines.length) return;
    const { axes } = this.state;
    const places = axes.map((_, index) => this.#x(index));
    context.strokeStyle = colour;
    context.beginPath();
    for (const line of lines) {
      for (let index = 0; index < axes.length; index += 1) {
        const [axis, x] = [axes[index], places[index]];
        if (!axis || x === undefined) continue;
        const y = this.#y(shareOf(axis, line.values[index]));
        if (index === 0) context.moveTo(x, y);
        else context.lineTo(x, y);
      }
    }
    context.stroke();
  }

  /** @param {CanvasRenderingContext2D} context */
  #drawAxes(context) {
    const { axes, brushes, lines } = this.state;
    const { top, bottom } = this.#span();
    const missing = lines.some((line) =>
      axes.some((axis, index) => shareOf(axis, line.values[index]) === null),
    );
    const gap = axes.length > 1 ? this.#x(1) - this.#x(0) : this.host.clientWidth / 2;
    context.font = FONT;
    axes.forEach((axis, index) => {
      const x = Math.round(this.#x(index)) + 0.5;
      context.strokeStyle = token("--line-strong");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(x, top);
      context.lineTo(x, bottom);
      context.stroke();
      context.textAlign = "center";
      context.textBaseline = "alphabetic";
      context.fillStyle = token("--text");
      const low = axes.length > 6 && index % 2 === 1; // neighbours' names would run into each other
      context.fillText(
        fitted(
          context,
          axis.name.replace(/^(params|metrics|tags)\./, ""),
          (axes.length > 6 ? 1.9 : 0.95) * gap,
        ),
        x,
        low ? 26 : 12,
      );
      const last = index === axes.length - 1 && axes.length > 1;
      context.textAlign = last ? "right" : "left";
      context.textBaseline = "middle";
      for (const { share, text } of ticksOf(axis, (bottom - top) / 34)) {
        const y = this.#y(share);
        haloed(context, fitted(context, text, gap - 12), x + (last ? -6 : 6), y);
      }
      if (missing) haloed(context, "none", x + (last ? -6 : 6), this.#y(null));
      const brush = brushes.get(axis.name);
      if (!brush) return;
      const marked = onAxis(brush);
      const box = /** @type {const} */ ([
        x - 7,
        this.#y(marked.high),
        14,
        this.#y(marked.low) - this.#y(marked.high),
      ]);
      context.fillStyle = token("--accent");
      context.globalAlpha = 0.25;
      context.fillRect(...box);
      context.globalAlpha = 1;
      context.strokeStyle = token("--accent");
      context.strokeRect(...box);
    });
  }

  #drawOverlay() {
    const context = cleared(this.overlay, this.host);
    const line =
      this.highlighted === null ? undefined : this.state.lines.find(({ id }) => id === this.highlighted);
    if (!line) return;
    context.lineJoin = "round";
    for (const [colour, width] of /** @type {[string, number][]} */ ([
      [token("--surface"), 6],
      [token("--text"), 2.5],
    ])) {
      context.lineWidth = width;
      this.#strokeAll(context, [line], colour);
    }
    context.fillStyle = token("--text");
    this.state.axes.forEach((axis, index) => {
      context.beginPath();
      context.arc(this.#x(index), this.#y(shareOf(axis, line.values[index])), 3.5, 0, 2 * Math.PI);
      context.fill();
    });
  }

  #listen() {
    const { overlay } = this;
    overlay.classList.add("parallel-over");
    const place = (/** @type {PointerEvent} */ event) => {
      const box = overlay.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    overlay.addEventListener("pointerdown", (event) => {
      const { x, y } = place(event);
      const axis = this.state.axes.findIndex((_, index) => Math.abs(this.#x(index) - x) <= GRASP);
      if (axis < 0 || event.button !== 0) return;
      overlay.setPointerCapture(event.pointerId);
      this.drag = { axis, from: y };
      event.preventDefault();
    });
    overlay.addEventListener("pointermove", (event) => {
      const { x, y } = place(event);
      if (this.drag) this.#brush(y, false);
      else {
        overlay.classList.toggle(
          "on-axis",
          this.state.axes.some((_, index) => Math.abs(this.#x(index) - x) <= GRASP),
        );
        this.events.onHover(this.nearest(x, y), x, y);
      }
    });
    overlay.addEventListener("pointerup", (event) => {
      this.#brush(place(event).y, true);
      this.drag = null;
    });
    overlay.addEventListener("pointerleave", () => this.events.onHover(null, 0, 0));
  }

  /** @param {number} y @param {boolean} last a click, which is a drag of no length, takes the brush away */
  #brush(y, last) {
    const axis = this.drag && this.state.axes[this.drag.axis];
    if (!this.drag || !axis) return;
    const { top, bottom } = this.#span();
    const share = (/** @type {number} */ pixel) =>
      Math.max(0, Math.min(1, (bottom - pixel) / (bottom - top)));
    const [start, end] = [share(this.drag.from), share(y)];
    if (Math.abs(this.drag.from - y) < 4) {
      if (last) this.events.onBrush(axis, null, true);
      return;
    }
    this.events.onBrush(axis, { low: Math.min(start, end), high: Math.max(start, end) }, last);
  }

  /**
   * The run whose line is nearest, among those within the brushes.
   * @param {number} x
   * @param {number} y
   * @returns {string | null}
   */
  nearest(x, y) {
    const { axes, lines } = this.state;
    const right = axes.findIndex((_, index) => this.#x(index) >= x);
    if (axes.length < 2 || x < SIDE - NEAR || right < 0) return null;
    const to = Math.max(1, right);
    const [leftAxis, rightAxis] = [axes[to - 1], axes[to]];
    if (!leftAxis || !rightAxis) return null;
    const share = (x - this.#x(to - 1)) / (this.#x(to) - this.#x(to - 1));
    let [best, nearest] = [/** @type {string | null} */ (null), NEAR];
    for (const line of lines) {
      const [from, until] = [
        this.#y(shareOf(leftAxis, line.values[to - 1])),
        this.#y(shareOf(rightAxis, line.values[to])),
      ];
      const slope = (until - from) / (this.#x(to) - this.#x(to - 1));
      const distance = Math.abs(from + share * (until - from) - y) / Math.hypot(1, slope);
      if (distance < nearest && line.inside) [best, nearest] = [line.id, distance];
    }
    return best;
  }
}

/** @param {HTMLElement} host */
function layer(host) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  host.append(canvas);
  return canvas;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {HTMLElement} host
 */
export function cleared(canvas, host) {
  const ratio = window.devicePixelRatio;
  const [width, height] = [Math.round(host.clientWidth * ratio), Math.round(host.clientHeight * ratio)];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, host.clientWidth, host.clientHeight);
  return context;
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} x @param {number} y */
function haloed(context, text, x, y) {
  context.lineWidth = 3;
  context.strokeStyle = token("--surface");
  context.lineJoin = "round";
  context.strokeText(text, x, y);
  context.fillStyle = token("--muted");
  context.fillText(text, x, y);
}

/** @param {CanvasRenderingContext2D} context @param {string} text @param {number} width */
export function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}
