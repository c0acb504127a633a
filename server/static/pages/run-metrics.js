/**
 * A run's metrics: their curves, which grow while it trains, and their numbers. The panels are Compare's, on
 * this one run.
 */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Empty, Section } from "../components/bits.js";
import { Problem } from "../components/problem.js";
import * as curves from "../compare/curve-store.js";
import * as live from "../compare/live.js";
import { Panel } from "../compare/panel.js";
import { only } from "../compare/runs.js";
import { AxisTools } from "../compare/toolbar.js";
import { measured } from "../compare/units.js";
import { NONE, counted } from "../lib/format.js";
import { html } from "../lib/html.js";

const FIRST = 12;
const MORE = 48;

/**
 * @param {{run: any, look: () => Promise<void>}} props look: reads the run again, whose state has changed
 */
export function Metrics({ run, look }) {
  const keys = Object.keys(run.metrics);
  const own = keys.filter((key) => !key.startsWith("system/"));
  const system = keys.filter((key) => key.startsWith("system/"));
  // Values of the whole run, such as the best accuracy, have no curve.
  const drawn = own.filter((key) => run.metrics[key].points !== null && !definitionOf(run, key).hidden);
  useEffect(() => {
    only.value = run;
  }, [run]);
  useEffect(() => {
    const stops = [curves.follow(), live.follow((state) => isNews(state) && void look())];
    return () => {
      for (const stop of stops) stop();
      only.value = null;
    };
  }, [run.id]);
  if (!keys.length) {
    return html`<${Empty} title="No metrics yet">
      ${run.status === "running" ? "They appear here within seconds of run.log." : "The run logged none."}
      <//>`;
  }
  if (only.value?.id !== run.id) return null; // until the effect above has said whose curves the panels show
  return html`
    ${
      own.length > 0 &&
      html`<${Section} title="Curves"
        count=${own.length} aside=${html`<div class="tools"><${AxisTools} /></div>`}>
      <${Problem} text=${curves.error.value || live.trouble.value} />
      <${Grid} keys=${drawn} />
      <details class="after" open=${own.length <= FIRST}><summary>Their numbers</summary>
        <${Numbers} run=${run} keys=${own} label="Metrics" /></details>
    <//>`
    }
    ${system.length > 0 && html`<${System} run=${run} keys=${system} />`}
  `;
}

/** Whether a state that came live is another one than the page shows. @param {any} state */
function isNews(state) {
  const chosen = only.peek();
  return state.run === chosen?.id && (state.status !== chosen?.status || state.attempt !== chosen?.attempt);
}

/** What the machine measured: only when it is asked for. @param {{run: any, keys: string[]}} props */
function System({ run, keys }) {
  const open = useSignal(false);
  return html`<section class="card">
    <details
      onToggle=${(/** @type {Event & {currentTarget: HTMLDetailsElement}} */ event) =>
        (open.value = event.currentTarget.open)}>
      <summary><strong>The machine</strong> <span class="muted">${counted(keys.length, "system metric")}
        </span></summary>
      ${
        open.value &&
        html`<${Grid} keys=${keys} axis="time" />
          <${Numbers} run=${run} keys=${keys} label="System metrics" />`
      }
    </details>
  </section>`;
}

/** @param {{keys: string[], axis?: "time"}} props */
function Grid({ keys, axis }) {
  const limit = useSignal(FIRST);
  const rest = keys.length - limit.value;
  return html`
    <div class="run-panels">
      ${keys.slice(0, limit.value).map((key) => html`<${Panel} key=${key} name=${key} axis=${axis} />`)}</div>
    ${
      rest > 0 &&
      html`<p class="more">
        <button type="button" onClick=${() => (limit.value += MORE)}>Show ${Math.min(rest, MORE)} more
          of ${keys.length}</button></p>`
    }
  `;
}

/** The metric that the script calls this one's x axis. @param {{run: any, name: string}} props */
function Axis({ run, name }) {
  const axis = definitionOf(run, name).step_metric;
  return axis && html` <span class="muted">over ${axis}</span>`;
}

/**
 * What the script said of a metric by define_metric: of its name, or of the longest beginning that fits.
 *
 * @param {any} run
 * @param {string} key
 * @returns {{step_metric?: string, hidden?: boolean}}
 */
function definitionOf(run, key) {
  const defined = run.defined_metrics ?? {};
  const exact = defined[key] ?? defined[key.replaceAll("/", ".")];
  if (exact) return exact;
  const fitting = Object.keys(defined).filter((name) => name.endsWith("*") && key.startsWith(name.slice(0, -1)));
  fitting.sort((first, second) => second.length - first.length);
  return defined[fitting[0] ?? ""] ?? {};
}

/** @param {{run: any, keys: string[], label: string}} props */
function Numbers({ run, keys, label }) {
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr><th scope="col">Metric</th><th scope="col" class="right">Last</th>
          <th scope="col" class="right">Min</th><th scope="col" class="right">Max</th>
          <th scope="col" class="right">Points</th></tr></thead>
      <tbody>${keys.map((key) => {
        const value = run.metrics[key];
        return html`<tr key=${key}>
          <th scope="row">${key}${value.points !== null && html`<${Axis} run=${run} name=${key} />`}</th>
          <td class="right strong">${measured(key, value.last)}</td>
          <td class="right">${measured(key, value.min)}</td>
          <td class="right">${measured(key, value.max)}</td><td class="right muted">${value.points ?? NONE}
          </td>
        </tr>`;
      })}</tbody>
    </table>
  </div>`;
}
