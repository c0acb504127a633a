/** One metric of all shown runs as a chart, and what is under the pointer. */
import { effect, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { bucketSize, notPositive } from "../charts/curves.js";
import { LineChart } from "../charts/line-chart.js";
import { measured, unitOf } from "../compare/units.js";
import { colourOf, styleOf } from "../lib/colours.js";
import { clock, counted, duration, number } from "../lib/format.js";
import { drawNoMore, drawSoon } from "../lib/frames.js";
import { html } from "../lib/html.js";
import { grouped, labelOf } from "./groups.js";
import * as state from "./state.js";

/** @typedef {import("../charts/curves.js").Curve} Curve */
/** @typedef {import("../charts/line-chart.js").Hit} Hit */

/** @param {string} run */
const style = (run) => ({ colour: colourOf(run), dash: /** @type {number[]} */ (styleOf(run).dash) });

/**
 * @param {{name: string, index: number, curves: state.Curves, rows: number}} props index: the metric's place
 *   on the page; rows: of each curve, at most
 */
export function Panel({ name, index, curves }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const hit = useSignal(/** @type {Hit | null} */ (null));
  const note = useSignal("");
  const word = useSignal("…");

  useLayoutEffect(() => {
    const box = /** @type {HTMLDivElement} */ (host.current);
    /** @type {LineChart | null} */
    let chart = null;
    const draw = () => {
      const drawn = grouped(curves.of(index, state.axis.peek(), state.visible.peek()), state.lines.peek());
      const nothing = state.logY.peek() ? notPositive(drawn) : { some: 0, all: 0 };
      note.value = [
        bucketsOf(drawn),
        nothing.some && `log y hides values ≤ 0 of ${counted(nothing.some, "line")}`,
      ]
        .filter(Boolean)
        .join(", ");
      word.value = drawn.length ? "" : "None of the shown runs has it";
      if (drawn.length && nothing.all === drawn.length)
        word.value = "No value is above 0: log y has nothing to show";
      const next = {
        curves: drawn,
        style,
        x: state.axis.peek(),
        logX: state.logX.peek(),
        logY: state.logY.peek(),
        unit: unitOf(name),
        weight: state.smoothing.peek(),
        band: state.band.peek(),
        window: state.windows.peek()[state.axis.peek()] ?? null,
        yWindow: state.valueWindows.peek().get(name) ?? null,
      };
      if (chart) chart.update(next);
      else
        chart = new LineChart(box, next, {
          onZoom: (window, values) => state.setZoom(window, name, values),
          onHover: (hovered) => {
            hit.value = hovered;
            state.highlighted.value = hovered?.run ?? null;
          },
        });
      performance.mark("halving:painted", { detail: name });
    };
    const light = () => {
      const run = state.highlighted.peek();
      chart?.highlight(run === null ? null : state.lineOf(run));
    };
    const stops = [
      effect(() => {
        void [
          state.axis.value,
          state.logX.value,
          state.logY.value,
          state.smoothing.value,
          state.band.value,
          state.windows.value,
          state.valueWindows.value,
          state.visible.value,
        ];
        drawSoon(draw);
      }),
      effect(() => {
        void state.highlighted.value;
        drawSoon(light);
      }),
    ];
    const sized = new ResizeObserver(() => chart?.resize(box.clientWidth, box.clientHeight));
    sized.observe(box);
    return () => {
      for (const stop of stops) stop();
      sized.disconnect();
      drawNoMore(draw);
      drawNoMore(light);
      chart?.destroy();
    };
  }, [name, index]);

  return html`
    <figure class="panel" data-metric=${name}>
      <figcaption>
        <span class="panel-title" title=${name}>${name}</span>
        <span class="panel-note" title=${note.value}>${note.value}</span>
      </figcaption>
      <div class="plot" role="img" aria-label=${`Chart of ${name}: ${counted(state.visible.value.size, "run")}`}>
        <div class="plot-host" ref=${host}></div>
        ${word.value && html`<span class="plot-word">${word.value}</span>`}
      </div>
      <${Tip} name=${name} hit=${hit} />
    </figure>
  `;
}

/** @param {Curve[]} curves */
function bucketsOf(curves) {
  if (curves.some((curve) => curve.members)) return "mean ± std of groups";
  const sizes = curves
    .filter((curve) => curve.min)
    .map((curve) => Math.max(2, Math.round(bucketSize(curve))));
  if (!sizes.length) return "";
  const [smallest, largest] = [Math.min(...sizes), Math.max(...sizes)];
  return smallest === largest ? `buckets of ${largest}` : `buckets of ${smallest}–${largest}`;
}

/** @param {import("./payload.js").Axis} axis @param {number} x */
function placeText(axis, x) {
  if (axis === "step") return `step ${number(x)}`;
  return axis === "time" ? clock(x) : duration(x);
}

/** @param {{hit: import("@preact/signals").Signal<Hit | null>, name: string}} props */
function Tip({ name, hit: under }) {
  const hit = under.value;
  if (!hit) return null;
  const { curve, row } = hit;
  const [low, high] = [curve.min?.[row], curve.max?.[row]];
  const left = hit.left > 180;
  const place = (/** @type {HTMLElement | null} */ box) => {
    if (!box) return;
    box.style.left = `${hit.plot + hit.left + (left ? -10 : 10)}px`;
    box.style.top = `${34 + Math.max(0, hit.top - 26)}px`;
    box.style.transform = left ? "translateX(-100%)" : "";
  };
  return html`
    <div class="tip" ref=${place}>
      <strong>${labelOf(hit.run)}
        ${curve.members ? html` <small>mean of ${counted(curve.members, "run")}</small>` : null}</strong>
      <span>${measured(name, curve.value[row], 4)}
        ${
          low !== undefined && low !== high
            ? html` <small>${measured(name, low, 4)} … ${measured(name, high, 4)}</small>`
            : null
        }</span>
      <span class="muted">${placeText(state.axis.value, curve.x[row] ?? 0)}</span>
    </div>
  `;
}
