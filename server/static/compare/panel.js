/** One metric of all shown runs: its chart, what is under the pointer, and the same as a table. */
import { effect, signal, useComputed, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { bucketSize, notPositive, sameBounds } from "../charts/curves.js";
import { colourOf, styleOf } from "../lib/colours.js";
import { counted, number } from "../lib/format.js";
import { drawNoMore, drawSoon } from "../lib/frames.js";
import { html } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { curvesOf, error, standing, want } from "./curve-store.js";
import { CurveTable, placeText } from "./curve-table.js";
import { grouper, isGroup, labelOf, lineOf, lines } from "./groups.js";
import { shownIds } from "./runs.js";
import { measured, unitOf } from "./units.js";
import * as view from "./view.js";

/** The run under the pointer, in any panel or the table. */
export const highlighted = signal(/** @type {string | null} */ (null));

/**
 * Metrics that are shown as tables: a panel that is scrolled out of sight, or whose line moves, is mounted
 * anew.
 */
const tables = signal(/** @type {ReadonlySet<string>} */ (new Set()));

/** @param {string} name */
function turnTable(name) {
  const next = new Set(tables.peek());
  if (!next.delete(name)) next.add(name);
  tables.value = next;
}

const MAX_MARKS = 1000;
let marks = 0;

/** @typedef {import("../charts/line-chart.js").LineChart} LineChart */
/** @type {typeof import("../charts/line-chart.js").LineChart | null} */
let Chart = null;

/**
 * The chart's module is run when the first question for curves is on its way: it takes as long as the server
 * does to answer.
 * @param {() => void} then called when it is there
 */
async function loadChart(then) {
  try {
    Chart ??= (await import("../charts/line-chart.js")).LineChart;
    then();
  } catch (failure) {
    const reason = failure instanceof Error ? failure.message : failure;
    error.value = `The charts could not be loaded: ${reason}. Reload the page.`;
  }
}

/** @param {string} run */
const style = (run) => ({ colour: colourOf(run), dash: /** @type {number[]} */ (styleOf(run).dash) });

/**
 * @param {{name: string, title?: string, axis?: "step" | "time" | "relative"}} props axis: in place of the
 *   view's
 */
export function Panel({ name, title = name, axis: fixed }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const hit = useSignal(/** @type {import("../charts/line-chart.js").Hit | null} */ (null));
  const note = useSignal("");
  const nothing = useSignal(false);
  const state = useSignal("loading");
  const table = useComputed(() => tables.value.has(name));
  const grown = useSignal(0);

  const grouped = useMemo(grouper, []);

  useLayoutEffect(() => {
    const box = /** @type {HTMLDivElement} */ (host.current);
    const axisOf = () => fixed ?? view.axis.peek();
    const zoomY = view.zoomYOf(name);
    const stateNow = () => ({
      curves: grouped(curvesOf(axisOf(), name, shownIds.peek()), view.smoothing.peek() > 0),
      style,
      x: axisOf(),
      logX: view.logX.peek(),
      logY: view.logY.peek(),
      unit: unitOf(name),
      weight: view.smoothing.peek(),
      band: view.band.peek(),
      window: view.zoomOf(axisOf()).peek(),
      yWindow: zoomY.peek(),
    });
    /** @type {LineChart | null} */
    let chart = null;
    const draw = () => {
      const next = stateNow();
      const stands = standing(next.x, name, shownIds.peek());
      const hidden = next.logY ? notPositive(next.curves) : { some: 0, all: 0 };
      note.value = [
        bucketsOf(next.curves),
        hidden.some && `log y hides values ≤ 0 of ${counted(hidden.some, "line")}`,
      ]
        .filter(Boolean)
        .join(", ");
      nothing.value = hidden.all > 0 && hidden.all === next.curves.length;
      state.value = stateOf(next.curves.length > 0, stands);
      if (!chart) {
        if (!next.curves.length || !Chart) return;
        chart = new Chart(box, next, {
          onZoom: (window, values) => view.setZoom(axisOf(), window, name, values),
          onHover: (hovered) => {
            hit.value = hovered;
            highlighted.value = hovered?.run ?? null;
          },
        });
        chart.plot.over.addEventListener("click", (event) => {
          const run = hit.peek()?.run;
          if (run && !isGroup(run) && (event.metaKey || event.ctrlKey)) navigate(`/runs/${run}`);
        });
      } else chart.update(next);
      grown.value += 1;
      if (stands !== "whole") return;
      performance.mark("halving:painted", { detail: name });
      // A dashboard may be open for weeks.
      if (++marks % MAX_MARKS === 0) performance.clearMarks("halving:painted");
    };
    const changed = () => drawSoon(draw);
    const light = () =>
      chart?.highlight(highlighted.peek() === null ? null : lineOf(highlighted.peek() ?? ""));
    let end = () => {};
    const stops = [
      effect(() => {
        const axis = fixed ?? view.axis.value;
        end();
        end = want(axis, [name], changed);
      }),
      effect(() => {
        void [
          shownIds.value,
          lines.value,
          view.axis.value,
          view.logX.value,
          view.logY.value,
          view.smoothing.value,
          view.band.value,
        ];
        changed();
      }),
      effect(() => {
        const window = view.zoomOf(fixed ?? view.axis.value).value;
        // Drawn at once; finer curves come later.
        if (chart && window && sameBounds(chart.state.window, window)) return;
        drawSoon(draw, { rest: true }); // the panel that was dragged is seen first
      }),
      effect(() => {
        const values = zoomY.value;
        if (chart && !sameBounds(chart.state.yWindow, values)) changed();
      }),
      effect(() => {
        void highlighted.value;
        drawSoon(light);
      }),
    ];
    if (!Chart) queueMicrotask(() => void loadChart(changed));
    const sized = new ResizeObserver(() => chart?.resize(box.clientWidth, box.clientHeight));
    sized.observe(box);
    return () => {
      for (const stop of stops) stop();
      end();
      sized.disconnect();
      drawNoMore(draw);
      drawNoMore(light);
      chart?.destroy();
    };
  }, [name, fixed]);

  const curves = table.value
    ? (void grown.value, grouped(curvesOf(fixed ?? view.axis.value, name, shownIds.value), false))
    : [];
  return html`
    <figure class="panel" data-metric=${name} data-state=${state.value}>
      <figcaption>
        <span class="panel-title" title=${name}>${title}</span>
        <span class="panel-note" title=${note.value}>${note.value}</span>
        <button class="icon" type="button"
          aria-pressed=${table.value} aria-label=${`${name} as a table`} title="As a table"
            onClick=${() => turnTable(name)}>
          <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true">
            <path class="stroke" d="M2 3h12v10H2zM2 6.5h12M2 9.7h12M6.5 3v10" /></svg>
        </button>
        <button class="icon wide-only" type="button"
          aria-label=${`${name} on the whole screen`} title="On the whole screen" onClick=${whole}>
          <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true">
            <path class="stroke" d="M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4" /></svg>
        </button>
      </figcaption>
      <div class="plot" role="img" aria-label=${`Chart of ${name}: ${counted(shownIds.value.length, "run")}`}>
        <div class="plot-host" ref=${host}></div>
        ${state.value === "loading" && html`<span class="plot-word">…</span>`}
        ${
          nothing.value && html`<span class="plot-word">No value is above 0: log y has nothing to show</span>`
        }
        ${state.value === "refused" && html`<span class="plot-word">Could not be read: see above</span>`}
        ${
          state.value === "empty" &&
          html`<span class="plot-word">
            ${shownIds.value.length ? "None of the shown runs has it" : "No run is shown"}</span>`
        }
      </div>
      <${Tip} name=${name} hit=${hit} axis=${fixed ?? view.axis.value} />
      ${
        table.value &&
        html`<${CurveTable} name=${name} curves=${curves} axis=${
          fixed ?? view.axis.value
        } window=${view.zoomOf(fixed ?? view.axis.value).value}
        onPoint=${(/** @type {string} */ run) => (highlighted.value = run)} />`
      }
    </figure>
  `;
}

/** A chart on the whole screen, and back. @param {Event} event */
function whole(event) {
  const panel = /** @type {HTMLElement} */ (event.currentTarget).closest("figure");
  if (document.fullscreenElement) void document.exitFullscreen();
  else void panel?.requestFullscreen();
}

/** @param {import("../charts/curves.js").Curve[]} curves */
function bucketsOf(curves) {
  if (curves.some((curve) => curve.members)) return "mean ± std of groups";
  const sizes = curves
    .filter((curve) => curve.min)
    .map((curve) => Math.max(2, Math.round(bucketSize(curve))));
  if (!sizes.length) return "";
  const [smallest, largest] = [Math.min(...sizes), Math.max(...sizes)];
  return smallest === largest ? `buckets of ${largest}` : `buckets of ${smallest}–${largest}`;
}

/**
 * What is under the pointer. It takes the signal, so that a move of the mouse renders nothing else of the
 * panel.
 * @param {{hit: import("@preact/signals").Signal<import("../charts/line-chart.js").Hit | null>, name: string,
 *   axis: "step" | "time" | "relative"}} props
 */
function Tip({ name, hit: under, axis }) {
  const hit = under.value;
  if (!hit) return null;
  const { curve, row } = hit;
  const low = curve.min?.[row];
  const high = curve.max?.[row];
  const left = hit.left > 180;
  return html`
    <div class="tip" ref=${(/** @type {HTMLElement | null} */ box) => box && place(box, hit, left)}>
      <strong>${labelOf(hit.run)}
        ${curve.members ? html` <small>mean of ${counted(curve.members, "run")}</small>` : null}</strong>
      <span>${measured(name, curve.value[row])}
        ${
          low !== undefined && low !== high
            ? html` <small>${measured(name, low, 4)} … ${measured(name, high, 4)}</small>`
            : null
        }</span>
      <span class="muted">${placeText(axis, curve.x[row] ?? 0)}</span>
    </div>
  `;
}

/**
 * @param {HTMLElement} box
 * @param {{left: number, top: number, plot: number}} pointer
 * @param {boolean} left
 */
function place(box, pointer, left) {
  box.style.left = `${pointer.plot + pointer.left + (left ? -10 : 10)}px`;
  box.style.top = `${34 + Math.max(0, pointer.top - 26)}px`;
  box.style.transform = left ? "translateX(-100%)" : "";
}

/**
 * What a panel shows: its curves, or why there are none.
 * @param {boolean} hasCurves
 * @param {string} stands what is known of the curves, see places.js
 */
function stateOf(hasCurves, stands) {
  if (hasCurves) return Chart ? "drawn" : "loading";
  return { whole: "empty", refused: "refused" }[stands] ?? "loading";
}
