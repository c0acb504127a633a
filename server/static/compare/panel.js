/** One metric of all shown runs: its chart, what is under the pointer, and the same as a table. */
import { effect, signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { sameBounds, summaryOf } from "../charts/curves.js";
import { colourOf, styleOf } from "../lib/colours.js";
import { counted, duration, number, time } from "../lib/format.js";
import { drawNoMore, drawSoon } from "../lib/frames.js";
import { html } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { complete, curvesOf, error, want } from "./curve-store.js";
import { shown } from "./runs.js";
import * as view from "./view.js";

/** The run under the pointer, in any panel or the table. */
export const highlighted = signal(/** @type {string | null} */ (null));

/** @typedef {import("../charts/line-chart.js").LineChart} LineChart */
/** @type {typeof import("../charts/line-chart.js").LineChart | null} */
let Chart = null;

/**
 * The chart's module is run when the first question for curves is on its way: it takes as long as the server does to answer.
 * @param {() => void} then called when it is there
 */
async function loadChart(then) {
  try {
    Chart ??= (await import("../charts/line-chart.js")).LineChart;
    then();
  } catch (failure) {
    error.value = `The charts could not be loaded: ${failure instanceof Error ? failure.message : failure}. Reload the page.`;
  }
}

/** @param {string} run */
const style = (run) => ({ colour: colourOf(run), dash: /** @type {number[]} */ (styleOf(run).dash) });

/**
 * A place on the x axis in words.
 * @param {"step" | "time" | "relative"} axis
 * @param {number} x
 */
const placeText = (axis, x) => (axis === "step" ? `step ${number(x)}` : axis === "time" ? time(x) : duration(x));

/**
 * @param {{name: string, title?: string, axis?: "step" | "time" | "relative"}} props axis: in place of the view's
 */
export function Panel({ name, title = name, axis: fixed }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const hit = useSignal(/** @type {import("../charts/line-chart.js").Hit | null} */ (null));
  const note = useSignal("");
  const state = useSignal("loading");
  const table = useSignal(false);
  const grown = useSignal(0);

  useLayoutEffect(() => {
    const box = /** @type {HTMLDivElement} */ (host.current);
    const axisOf = () => fixed ?? view.axis.peek();
    const stateNow = () => ({
      curves: curvesOf(axisOf(), name, shown.peek()),
      style,
      x: axisOf(),
      logX: view.logX.peek(),
      logY: view.logY.peek(),
      weight: view.smoothing.peek(),
      band: view.band.peek(),
      window: view.zoom.peek(),
    });
    /** @type {LineChart | null} */
    let chart = null;
    const draw = () => {
      const next = stateNow();
      const known = complete(next.x, name, shown.peek());
      note.value = bucketsOf(next.curves);
      state.value = next.curves.length ? "drawn" : known ? "empty" : "loading";
      if (!chart) {
        if (!next.curves.length || !Chart) return;
        chart = new Chart(box, next, {
          onZoom(window) {
            view.setZoom(window);
          },
          onHover: (found) => {
            hit.value = found;
            highlighted.value = found?.run ?? null;
          },
        });
        chart.plot.over.addEventListener("click", (event) => {
          const run = hit.peek()?.run;
          if (run && (event.metaKey || event.ctrlKey)) navigate(`/runs/${run}`);
        });
      } else chart.update(next);
      grown.value += 1;
      if (known) performance.mark("halving:painted", { detail: name });
    };
    const changed = () => drawSoon(draw);
    const light = () => chart?.highlight(highlighted.peek());
    let end = () => {};
    const stops = [
      effect(() => {
        const axis = fixed ?? view.axis.value;
        end();
        end = want(axis, [name], changed);
      }),
      effect(() => {
        void [shown.value, view.axis.value, view.logX.value, view.logY.value, view.smoothing.value, view.band.value];
        changed();
      }),
      effect(() => {
        const window = view.zoom.value;
        if (chart && window && sameBounds(chart.state.window, window)) return; // drawn at once; finer curves come later
        drawSoon(draw, { rest: true }); // the panel that was dragged is seen first
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

  const curves = table.value ? (void grown.value, curvesOf(fixed ?? view.axis.value, name, shown.value)) : [];
  return html`
    <figure class="panel" data-metric=${name} data-state=${state.value}>
      <figcaption>
        <span class="panel-title" title=${name}>${title}</span>
        <span class="panel-note">${note.value}</span>
        <button class="icon" type="button" aria-pressed=${table.value} aria-label=${`${name} as a table`} title="As a table" onClick=${() => (table.value = !table.value)}>
          <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true"><path class="stroke" d="M2 3h12v10H2zM2 6.5h12M2 9.7h12M6.5 3v10" /></svg>
        </button>
        <button class="icon wide-only" type="button" aria-label=${`${name} on the whole screen`} title="On the whole screen" onClick=${whole}>
          <svg viewBox="0 0 16 16" width="13" height="13" aria-hidden="true"><path class="stroke" d="M2 6V2h4M10 2h4v4M14 10v4h-4M6 14H2v-4" /></svg>
        </button>
      </figcaption>
      <div class="plot" role="img" aria-label=${`Chart of ${name}: ${counted(shown.value.length, "run")}`}>
        <div class="plot-host" ref=${host}></div>
        ${state.value === "loading" && html`<span class="plot-word">…</span>`}
        ${state.value === "empty" && html`<span class="plot-word">${shown.value.length ? "None of the shown runs has it" : "No run is shown"}</span>`}
      </div>
      <${Tip} hit=${hit} axis=${fixed ?? view.axis.value} />
      ${table.value && html`<${CurveTable} name=${name} curves=${curves} axis=${fixed ?? view.axis.value} />`}
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
  const sizes = curves.filter((curve) => curve.min).map((curve) => Math.max(2, Math.round(curve.points / Math.max(1, curve.length))));
  if (!sizes.length) return "";
  const [least, most] = [Math.min(...sizes), Math.max(...sizes)];
  return least === most ? `buckets of ${most}` : `buckets of ${least}–${most}`;
}

/**
 * What is under the pointer. It takes the signal, so that a move of the mouse renders nothing else of the panel.
 * @param {{hit: import("@preact/signals").Signal<import("../charts/line-chart.js").Hit | null>, axis: "step" | "time" | "relative"}} props
 */
function Tip({ hit: under, axis }) {
  const hit = under.value;
  if (!hit) return null;
  const { curve, row } = hit;
  const low = curve.min?.[row];
  const high = curve.max?.[row];
  const left = hit.left > 180;
  return html`
    <div class="tip" ref=${(/** @type {HTMLElement | null} */ box) => box && place(box, hit, left)}>
      <strong>${hit.run.split("/")[1]}</strong>
      <span>${number(curve.value[row])}${low !== undefined && low !== high ? html` <small>${number(low, 4)} … ${number(high, 4)}</small>` : null}</span>
      <span class="muted">${placeText(axis, curve.x[row] ?? 0)}</span>
    </div>
  `;
}

/** @param {HTMLElement} box @param {{left: number, top: number, plot: number}} at @param {boolean} left */
function place(box, at, left) {
  box.style.left = `${at.plot + at.left + (left ? -10 : 10)}px`;
  box.style.top = `${34 + Math.max(0, at.top - 26)}px`;
  box.style.transform = left ? "translateX(-100%)" : "";
}

/**
 * @param {{name: string, curves: import("../charts/curves.js").Curve[], axis: "step" | "time" | "relative"}} props
 */
function CurveTable({ name, curves, axis }) {
  return html`
    <div class="curve-table" tabindex="0" role="region" aria-label=${`${name} as a table`}>
      <table>
        <thead><tr><th scope="col">Run</th><th scope="col">Last</th><th scope="col">At</th><th scope="col">Min</th><th scope="col">Max</th><th scope="col">Points</th></tr></thead>
        <tbody>
          ${curves.map((curve) => {
            const of = summaryOf(curve);
            return html`<tr onMouseEnter=${() => (highlighted.value = curve.run)}>
              <th scope="row">${curve.run.split("/")[1]}</th><td>${number(of.last)}</td><td>${placeText(axis, of.lastX)}</td>
              <td>${number(of.min)}</td><td>${number(of.max)}</td><td>${curve.points}</td>
            </tr>`;
          })}
        </tbody>
      </table>
    </div>
  `;
}
