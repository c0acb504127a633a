/** Parameters: which values went with which results, by parallel coordinates, a scatter plot and rank correlations. */
import { computed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { axisOf, MOST_TEXTS, numberOf, shareOf } from "../charts/axis.js";
import { filterOf, ParallelCoordinates } from "../charts/parallel-coordinates.js";
import { shade } from "../charts/ramp.js";
import { ScatterPlot } from "../charts/scatter-plot.js";
import { rankCorrelation } from "../charts/statistics.js";
import { Problem } from "../components/problem.js";
import { trouble, useWatched } from "../lib/api.js";
import { counted, number, shown } from "../lib/format.js";
import { html } from "../lib/html.js";
import { query, queryValue, setQuery } from "../lib/url-state.js";
import { narrowed } from "./view.js";

/** @typedef {import("@preact/signals").Signal<string | null>} Highlighted */
/** @typedef {{id: string, run: string, values: Record<string, unknown>}} Run */
/** @typedef {{name: string, count: number, type: string}} Name */

const MOST_RUNS = 1000;
const MOST_ASKED = 90; // columns of a request, with room for what is chosen besides
const MOST_AXES = 9;

const color = queryValue("color");
const chosenAxes = computed(() => query.value.get("axes")?.split(",").filter(Boolean) ?? null);
const scatterX = queryValue("sx");
const scatterY = queryValue("sy");

/**
 * A name as a filter writes it: `params.lr`, `metrics."val loss"`.
 * @param {string} kind
 * @param {string} name
 */
export const fieldOf = (kind, name) => `${kind}.${/^[\w\-/.@:+]+$/.test(name) ? name : `"${name}"`}`;

/**
 * @param {{filter: string, highlighted: Highlighted, onFilter: (filter: string) => void}} props
 *   filter: which runs; highlighted: the run that is looked at, on all charts; onFilter: choose others
 */
export function Parameters({ filter, highlighted, onFilter }) {
  const names = useWatched("/runs/columns?limit=1000", { every: 10_000 });
  const known = names.data.value;
  if (!known) return html`<div class="tab-body"><${Problem} text=${trouble(names)} /></div>`;
  const params = /** @type {Name[]} */ (known.params).map((each) => fieldOf("params", each.name)).slice(0, MOST_ASKED / 2);
  const metrics = /** @type {Name[]} */ (known.metrics).map((each) => fieldOf("metrics", each.name)).filter((name) => !name.includes(".system/"));
  if (!params.length) return html`<p class="nothing">No run has a param yet.</p>`;
  return html`<${Loaded} params=${params} metrics=${metrics} ...${{ filter, highlighted, onFilter }} />`;
}

/**
 * The metric that most probably is what the runs are about.
 * @param {string[]} metrics
 * @param {string} filter
 */
export function objectiveOf(metrics, filter) {
  const ordered = /order\s+by\s+(?:\w+\()?(metrics\.[\w\-/.@:+]+)/i.exec(filter)?.[1];
  const patterns = [/val\w*[/_.-]?loss/i, /val\w*[/_.-]?acc/i, /val|test|eval/i, /loss/i, /./];
  return ordered ?? patterns.map((pattern) => metrics.find((name) => pattern.test(name))).find(Boolean) ?? "";
}

/** @param {{params: string[], metrics: string[], filter: string, highlighted: Highlighted, onFilter: (filter: string) => void}} props */
function Loaded({ params, metrics, filter, highlighted, onFilter }) {
  const objective = color.value || objectiveOf(metrics, filter);
  const asked = [...new Set([...params, objective, ...(chosenAxes.value ?? []), scatterX.value, scatterY.value])].filter(Boolean).slice(0, 100);
  const question = new URLSearchParams({ limit: String(MOST_RUNS), columns: asked.join(",") });
  if (filter) question.set("filter", filter);
  const watched = useWatched(`/runs?${question}`);
  /** @type {Run[]} */
  const runs = watched.data.value?.runs ?? [];
  const axes = Object.fromEntries(asked.map((name) => [name, axisOf(name, runs.map((run) => run.values[name]))]));
  const varying = params.filter((name) => distinct(runs, name) > 1 && (axes[name]?.kind === "number" || (axes[name]?.texts.length ?? 0) <= MOST_TEXTS));
  const drawn = (chosenAxes.value ?? [...varying.slice(0, MOST_AXES - 1), objective]).filter((name) => axes[name]);
  const tint = axes[objective];
  /** @param {Run} run */
  const share = (run) => (tint ? shareOf(tint, run.values[objective]) : null);
  const related = correlations(runs, varying.filter((name) => axes[name]?.kind === "number"), objective);
  const [x, y] = [scatterX.value || related[0]?.name || varying[0] || params[0] || "", scatterY.value || objective];
  return html`
    <div class="tab-body parameters" tabindex="0" role="region" aria-label="Parameters">
      <${Problem} text=${trouble(watched)} />
      <div class="tab-bar">
        <label>Colour by <${Choice} value=${objective} names=${[...metrics, ...params]} set=${(/** @type {string} */ name) => setQuery({ color: name })} /></label>
        <${Axes} names=${[...params, ...metrics]} chosen=${drawn} />
        <span class="muted">${watched.data.value ? told(runs, watched.data.value.total, objective) : ""}</span>
      </div>
      ${watched.data.value && html`<${Parallel} runs=${runs} axes=${drawn.map((name) => axes[name])} share=${share} highlighted=${highlighted} filter=${filter} onFilter=${onFilter} />`}
      ${tint?.kind === "number" && Number.isFinite(tint.low) && html`<${Legend} axis=${tint} />`}
      <div class="two-charts">
        <section class="card" aria-label="Scatter plot">
          <div class="tab-bar">
            <label>Across <${Choice} value=${x} names=${[...params, ...metrics]} set=${(/** @type {string} */ name) => setQuery({ sx: name })} /></label>
            <label>Up <${Choice} value=${y} names=${[...metrics, ...params]} set=${(/** @type {string} */ name) => setQuery({ sy: name })} /></label>
          </div>
          ${axes[x] && axes[y] && html`<${Scatter} runs=${runs} x=${axes[x]} y=${axes[y]} share=${share} highlighted=${highlighted} />`}
        </section>
        <${Importance} found=${related.slice(0, 20)} objective=${objective} />
      </div>
    </div>
  `;
}

/** @param {Run[]} runs @param {number} total @param {string} objective */
function told(runs, total, objective) {
  const without = runs.filter((run) => !Number.isFinite(numberOf(run.values[objective]))).length;
  const first = total > runs.length ? `the first ${runs.length} of ${total} runs` : counted(runs.length, "run");
  return without && objective ? `${first}, ${without} of them grey: without a finite ${objective}` : first;
}

/** @param {Run[]} runs @param {string} name */
const distinct = (runs, name) => new Set(runs.map((run) => run.values[name]).filter((value) => value !== undefined && value !== null)).size;

/** @param {{value: string, names: string[], set: (name: string) => void}} props */
function Choice({ value, names, set }) {
  const all = names.includes(value) || !value ? names : [value, ...names];
  return html`<select value=${value} onChange=${(/** @type {Event} */ event) => set(/** @type {HTMLSelectElement} */ (event.target).value)}>
    ${all.slice(0, 500).map((name) => html`<option key=${name} value=${name} selected=${name === value}>${name}</option>`)}
  </select>`;
}

/** @param {{names: string[], chosen: string[]}} props */
function Axes({ names, chosen }) {
  /** @param {string} name */
  const toggle = (name) => {
    const next = chosen.includes(name) ? chosen.filter((each) => each !== name) : [...chosen, name];
    setQuery({ axes: next.length ? next.join(",") : null });
  };
  return html`<details class="menu">
    <summary>Axes <span class="muted">${chosen.length}</span></summary>
    <fieldset class="menu-body">
      <legend class="sr-only">Axes</legend>
      ${names.slice(0, 300).map((name) => html`<label key=${name}><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${name}</label>`)}
    </fieldset>
  </details>`;
}

/** @param {{axis: import("../charts/axis.js").Axis}} props */
function Legend({ axis }) {
  return html`<div class="ramp" role="img" aria-label=${`Colours from ${number(axis.low)} to ${number(axis.high)}`}>
    <span>${number(axis.low, 4)}</span>
    <svg viewBox="0 0 120 8" width="120" height="8" aria-hidden="true">${Array.from({ length: 24 }, (_, index) => html`<rect x=${index * 5} y="0" width="5.2" height="8" fill=${shade(index / 23)} />`)}</svg>
    <span>${number(axis.high, 4)}</span> <span class="muted">${axis.name}${axis.log ? ", by its logarithm" : ""}</span>
  </div>`;
}

/**
 * @param {{runs: Run[], axes: import("../charts/axis.js").Axis[], share: (run: Run) => number | null, highlighted: Highlighted,
 *   filter: string, onFilter: (filter: string) => void}} props
 */
function Parallel({ runs, axes, share, highlighted, filter, onFilter }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {ParallelCoordinates | null} */ (null));
  const brushes = useSignal(/** @type {ReadonlyMap<string, import("../charts/parallel-coordinates.js").Brush>} */ (new Map()));
  const tip = useSignal(/** @type {{id: string, left: number, top: number} | null} */ (null));
  const lines = runs.map((run) => ({ id: run.id, values: axes.map((axis) => run.values[axis.name]), share: share(run) }));
  const state = { axes, lines, brushes: brushes.value };
  useEffect(() => {
    chart.current = new ParallelCoordinates(/** @type {HTMLDivElement} */ (host.current), state, {
      onBrush(axis, brush) {
        const next = new Map(brushes.peek());
        if (brush) next.set(axis.name, brush);
        else next.delete(axis.name);
        brushes.value = next;
      },
      onHover(id, left, top) {
        highlighted.value = id;
        tip.value = id ? { id, left, top } : null;
      },
    });
    return () => chart.current?.destroy();
  }, []);
  useEffect(() => chart.current?.update(state), [runs, axes.map((axis) => axis.name).join(), share(runs[0] ?? { id: "", run: "", values: {} }), brushes.value]);
  useSignalEffect(() => {
    const id = highlighted.value;
    chart.current?.highlight(id);
  });
  const brushed = axes.filter((axis) => brushes.value.has(axis.name));
  const within = brushed.length ? lines.filter((line) => chart.current?.isIn(line)).length : 0;
  const apply = () => {
    const words = brushed.map((axis) => filterOf(axis, /** @type {import("../charts/parallel-coordinates.js").Brush} */ (brushes.value.get(axis.name))));
    onFilter(narrowed(filter, words));
    brushes.value = new Map();
  };
  return html`
    <div class="parallel" ref=${host} role="img"
      aria-label=${`Parallel coordinates of ${counted(runs.length, "run")} on ${axes.map((axis) => axis.name).join(", ")}. The table of runs has the same values.`}>
      ${tip.value && html`<${RunTip} run=${runs.find((run) => run.id === tip.value?.id)} at=${tip.value} names=${axes.map((axis) => axis.name)} />`}
    </div>
    <div class="tab-bar brushes" role="status">
      ${
        brushed.length
          ? html`<span>${counted(within, "run")} within what is marked</span>
              <button class="primary" type="button" onClick=${apply}>Filter by it</button>
              <button type="button" onClick=${() => (brushes.value = new Map())}>Clear</button>`
          : html`<span class="muted">Drag along an axis to mark a part of it.</span>`
      }
    </div>
  `;
}

/** @param {{run: Run | undefined, at: {left: number, top: number}, names: string[]}} props */
function RunTip({ run, at, names }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    const tip = box.current;
    const width = tip?.parentElement?.clientWidth ?? 0;
    if (!tip) return;
    tip.style.left = `${at.left + (at.left > width / 2 ? -12 - tip.offsetWidth : 12)}px`;
    tip.style.top = `${Math.max(0, at.top - tip.offsetHeight / 2)}px`;
  });
  if (!run) return null;
  return html`<div class="run-tip" ref=${box}><strong>${run.run}</strong>
    <dl>${names.slice(0, 12).map((name) => html`<div><dt>${name.replace(/^\w+\./, "")}</dt><dd>${shown(run.values[name])}</dd></div>`)}</dl></div>`;
}

/**
 * @param {{runs: Run[], x: import("../charts/axis.js").Axis, y: import("../charts/axis.js").Axis, share: (run: Run) => number | null, highlighted: Highlighted}} props
 */
function Scatter({ runs, x, y, share, highlighted }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {ScatterPlot | null} */ (null));
  const tip = useSignal(/** @type {{id: string, left: number, top: number} | null} */ (null));
  const state = { x, y, points: runs.map((run) => ({ id: run.id, x: run.values[x.name], y: run.values[y.name], share: share(run) })) };
  useEffect(() => {
    chart.current = new ScatterPlot(/** @type {HTMLDivElement} */ (host.current), state, (id, left, top) => {
      highlighted.value = id;
      tip.value = id ? { id, left, top } : null;
    });
    return () => chart.current?.destroy();
  }, []);
  useEffect(() => chart.current?.update(state), [runs, x.name, y.name, share(runs[0] ?? { id: "", run: "", values: {} })]);
  useSignalEffect(() => {
    const id = highlighted.value;
    chart.current?.highlight(id);
  });
  return html`<div class="scatter" ref=${host} role="img" aria-label=${`${y.name} against ${x.name} of ${counted(runs.length, "run")}`}>
    ${tip.value && html`<${RunTip} run=${runs.find((run) => run.id === tip.value?.id)} at=${tip.value} names=${[x.name, y.name]} />`}
  </div>`;
}

/**
 * How each param goes with the metric, the closest first.
 * @param {Run[]} runs
 * @param {string[]} params
 * @param {string} objective
 */
function correlations(runs, params, objective) {
  return params
    .map((name) => ({ name, ...rankCorrelation(runs.map((run) => [run.values[name], run.values[objective]])) }))
    .sort((one, other) => (Math.abs(other.rho) || 0) - (Math.abs(one.rho) || 0));
}

/** @param {{found: {name: string, rho: number, count: number}[], objective: string}} props */
function Importance({ found, objective }) {
  return html`
    <section class="card" aria-label="Rank correlation">
      <h2>Rank correlation with ${objective || "…"}</h2>
      <p class="muted">Spearman's ρ of each numeric param: 1 where the metric only grows with it, −1 where it only falls. One param at a time: it sees no interplay, and
        a best value in the middle looks like no relation.</p>
      ${
        found.length
          ? html`<table class="bars">
              <thead class="sr-only"><tr><th scope="col">Param</th><th scope="col">|ρ|</th><th scope="col">ρ</th><th scope="col">Runs</th></tr></thead>
              <tbody>${found.map(
                ({ name, rho, count }) => html`<tr key=${name}>
                  <th scope="row" title=${name}>${name.replace("params.", "")}</th>
                  <td><meter min="0" max="1" value=${Math.abs(rho) || 0} aria-label=${`|ρ| of ${name}`}></meter></td>
                  <td class="value">${Number.isNaN(rho) ? "–" : `${rho < 0 ? "−" : "+"}${Math.abs(rho).toFixed(2)}`}</td><td class="muted value">n ${count}</td>
                </tr>`,
              )}</tbody>
            </table>`
          : html`<p class="nothing">No numeric param differs between these runs.</p>`
      }
    </section>
  `;
}
