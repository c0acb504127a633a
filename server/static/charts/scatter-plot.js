/** A point for each run, by any of its values against any other. */
import { token } from "../lib/theme.js";
import { shareOf, ticksOf } from "./axis.js";
import { onAxis } from "./brush.js";
import { cleared, fitted } from "./parallel-coordinates.js";
import { shade } from "./ramp.js";
import { redrawOnChange } from "./redraw.js";

/**
 * @typedef {import("./axis.js").Axis} Axis
 * @typedef {import("./brush.js").Brush} Brush
 * @typedef {{id: string, x: unknown, y: unknown, share: number | null, inside: boolean}} Point inside:
 *   whether it is within all that is marked
 * @typedef {{x: Axis, y: Axis, points: Point[], brushes: ReadonlyMap<string, Brush>}} ScatterState brushes:
 *   by the axis's name
 *
 * @typedef {object} ScatterEvents
 * @property {(x: Brush | null, y: Brush | null, last: boolean) => void} onBrush last: the drag has ended
 * @property {(id: string | null, left: number, top: number) => void} onHover
 */

const [LEFT, RIGHT, TOP, BOTTOM, INSET] = [64, 14, 12, 40, 10];
const NEAR = 14;
const DRAG = 6;
const FONT = '11px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';

export class ScatterPlot {
  /**
   * @param {HTMLElement} host
   * @param {ScatterState} state
   * @param {ScatterEvents} events
   */
  constructor(host, state, events) {
    this.host = host;
    this.state = state;
    this.events = events;
    /** @type {{x: number, y: number} | null} where a drag began */
    this.drag = null;
    /** @type {string | null} */
    this.highlighted = null;
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("aria-hidden", "true");
    host.append(this.canvas);
    this.#listen();
    this.stopDrawing = redrawOnChange(host, () => this.draw());
  }

  /** @param {ScatterState} state */
  update(state) {
    this.state = state;
    this.draw();
  }

  /** @param {string | null} id */
  highlight(id) {
    if (id === this.highlighted) return;
    this.highlighted = id;
    this.draw();
  }

  destroy() {
    this.stopDrawing();
    this.canvas.remove();
  }

  #listen() {
    const { canvas } = this;
    const place = (/** @type {PointerEvent} */ event) => {
      const box = canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls the page
      canvas.setPointerCapture(event.pointerId);
      this.drag = place(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      const pointer = place(event);
      if (this.drag) this.#brush(this.drag, pointer, false);
      else this.events.onHover(this.nearest(pointer.x, pointer.y), pointer.x, pointer.y);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (this.drag) this.#brush(this.drag, place(event), true);
      this.drag = null;
    });
    canvas.addEventListener("pointerleave", () => this.events.onHover(null, 0, 0));
  }

  /**
   * @param {{x: number, y: number}} from
   * @param {{x: number, y: number}} to
   * @param {boolean} last a click takes the brushes away
   */
  #brush(from, to, last) {
    const [wide, high] = [Math.abs(from.x - to.x) >= DRAG, Math.abs(from.y - to.y) >= DRAG];
    if (!wide && !high && !last) return;
    const { left, bottom, width, height } = this.#box();
    const [across, up] = [
      (/** @type {number} */ x) => (x - left) / width,
      (/** @type {number} */ y) => (bottom - y) / height,
    ];
    const between = (/** @type {number} */ start, /** @type {number} */ end) =>
      onAxis({ low: Math.min(start, end), high: Math.max(start, end) });
    this.events.onBrush(
      wide ? between(across(from.x), across(to.x)) : null,
      high ? between(up(from.y), up(to.y)) : null,
      last,
    );
  }

  /** Where the axes go from 0 to 1. */
  #box() {
    const { clientWidth: width, clientHeight: height } = this.host;
    return {
      left: LEFT + INSET,
      bottom: height - BOTTOM - INSET,
      width: width - LEFT - RIGHT - 2 * INSET,
      height: height - TOP - BOTTOM - 2 * INSET,
    };
  }

  /** @param {Point} point @returns {[number, number] | null} */
  #place(point) {
    const [x, y] = [shareOf(this.state.x, point.x), shareOf(this.state.y, point.y)];
    if (x === null || y === null) return null;
    const { left, bottom, width, height } = this.#box();
    return [left + x * width, bottom - y * height];
  }

  draw() {
    const context = cleared(this.canvas, this.host);
    this.#drawAxes(context);
    this.#drawBrushes(context);
    const { points } = this.state;
    const radius = points.length > 400 ? 2.5 : 3.5;
    const alpha = points.length > 100 ? 0.75 : 0.9;
    for (const point of points) {
      context.globalAlpha = point.inside ? alpha : 0.16;
      this.#dot(context, point, radius);
    }
    context.globalAlpha = 1;
    const chosen = points.find((point) => point.id === this.highlighted);
    const place = chosen && this.#place(chosen);
    if (!chosen || !place) return;
    context.strokeStyle = token("--text");
    context.lineWidth = 2;
    context.beginPath();
    context.arc(place[0], place[1], radius + 3, 0, 2 * Math.PI);
    context.stroke();
    this.#dot(context, chosen, radius);
  }

  /** @param {CanvasRenderingContext2D} context */
  #drawBrushes(context) {
    const { x, y, brushes } = this.state;
    const [across, up] = [brushes.get(x.name), brushes.get(y.name)];
    if (!across && !up) return;
    const { left, bottom, width, height } = this.#box();
    const [horizontal, vertical] = [onAxis(across ?? { low: 0, high: 1 }), onAxis(up ?? { low: 0, high: 1 })];
    const box = /** @type {const} */ ([
      left + horizontal.low * width,
      bottom - vertical.high * height,
      (horizontal.high - horizontal.low) * width,
      (vertical.high - vertical.low) * height,
    ]);
    context.fillStyle = token("--accent");
    context.globalAlpha = 0.12;
    context.fillRect(...box);
    context.globalAlpha = 1;
    context.strokeStyle = token("--accent");
    context.strokeRect(...box);
  }

  /** @param {CanvasRenderingContext2D} context @param {Point} point @param {number} radius */
  #dot(context, point, radius) {
    const place = this.#place(point);
    if (!place) return;
    context.fillStyle = point.share === null ? token("--muted") : shade(point.share);
    context.beginPath();
    context.arc(place[0], place[1], radius, 0, 2 * Math.PI);
    context.fill();
  }

  /** @param {CanvasRenderingContext2D} context */
  #drawAxes(context) {
    const { clientWidth: width, clientHeight: height } = this.host;
    const [innerWidth, innerHeight] = [width - LEFT - RIGHT, height - TOP - BOTTOM];
    context.font = FONT;
    context.strokeStyle = token("--line");
    context.lineWidth = 1;
    context.textBaseline = "top";
    context.textAlign = "center";
    for (const { share, text } of ticksOf(this.state.x, innerWidth / 70)) {
      const x = Math.round(LEFT + INSET + share * (innerWidth - 2 * INSET)) + 0.5;
      line(context, x, TOP, x, height - BOTTOM);
      context.fillStyle = token("--muted");
      context.fillText(fitted(context, text, 70), x, height - BOTTOM + 6);
    }
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const { share, text } of ticksOf(this.state.y, innerHeight / 36)) {
      const y = Math.round(height - BOTTOM - INSET - share * (innerHeight - 2 * INSET)) + 0.5;
      line(context, LEFT, y, width - RIGHT, y);
      context.fillStyle = token("--muted");
      context.fillText(fitted(context, text, LEFT - 24), LEFT - 6, y);
    }
    context.fillStyle = token("--text");
    context.textAlign = "center";
    context.fillText(fitted(context, this.state.x.name, innerWidth), LEFT + innerWidth / 2, height - 10);
    context.save();
    context.translate(10, TOP + innerHeight / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(fitted(context, this.state.y.name, innerHeight), 0, 0);
    context.restore();
  }

  /**
   * @param {number} left
   * @param {number} top
   * @returns {string | null}
   */
  nearest(left, top) {
    let [best, nearest] = [/** @type {string | null} */ (null), NEAR];
    for (const point of this.state.points) {
      const place = this.#place(point);
      const distance = place ? Math.hypot(place[0] - left, place[1] - top) : Infinity;
      if (distance < nearest) [best, nearest] = [point.id, distance];
    }
    return best;
  }
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} toX
 * @param {number} toY
 */
function line(context, x, y, toX, toY) {
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(toX, toY);
  context.stroke();
}
