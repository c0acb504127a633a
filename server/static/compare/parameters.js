/**
 * Parameters: which values went with which results, by parallel coordinates, a scatter plot and rank
 * correlations.
 */
import { computed, useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { axisOf, MAX_TEXTS, numberOf, shareOf } from "../charts/axis.js";
import { ParallelCoordinates } from "../charts/parallel-coordinates.js";
import { shade } from "../charts/ramp.js";
import { ScatterPlot } from "../charts/scatter-plot.js";
import { Problem } from "../components/problem.js";
import { trouble, useWatched } from "../lib/api.js";
import { counted, number, display } from "../lib/format.js";
import { html } from "../lib/html.js";
import { query, queryValue, setQuery } from "../lib/url-state.js";
import { fieldsOf, orderOf } from "./filter-text.js";
import { Importances, importances } from "./importance.js";
import { matcher } from "./layout.js";
import { brush, Marked, markedNames, marksOn, within } from "./marks.js";
import { names, quoted } from "./names.js";

/** @typedef {import("@preact/signals").Signal<string | null>} Highlighted */
/** @typedef {{id: string, run: string, values: Record<string, unknown>}} Run */

const MAX_RUNS = 1000;
const MAX_COLUMNS = 90; // columns of a request, with room for what is chosen besides
const MAX_AXES = 9;

const color = queryValue("color");
const chosenAxes = computed(() => (query.value.has("axes") ? fieldsOf(query.value.get("axes") ?? "") : null));
const scatterX = queryValue("sx");
const scatterY = queryValue("sy");

/**
 * A name as a filter writes it: `params.lr`, `metrics."val loss"`.
 * @param {string} kind
 * @param {string} name
 */
const fieldOf = (kind, name) => `${kind}.${quoted(name)}`;

/**
 * @param {{filter: string, highlighted: Highlighted, onFilter: (filter: string) => void}} props
 *   filter: which runs; highlighted: the run that is looked at, on all charts; onFilter: choose others
 */
export function Parameters({ filter, highlighted, onFilter }) {
  const columns = names.value;
  if (!columns) return html`<p class="nothing">…</p>`;
  const all = columns.params.map((param) => fieldOf("params", param.name));
  const params = all.slice(0, MAX_COLUMNS / 2); // those that most runs have
  const metrics = columns.metrics
    .map((metric) => fieldOf("metrics", metric.name))
    .filter((name) => !name.includes(".system/"));
  if (!params.length) return html`<p class="nothing">None of these runs has a param.</p>`;
  return html`<${Loaded} all=${all} params=${params} metrics=${metrics}
    ...${{ filter, highlighted, onFilter }} />`;
}

/** The metric of an order, bare or within `min(…)`. */
const ORDERED = /^(?:\w+\s*\(\s*)?(metrics\..*?)\s*\)?$/is;

/**
 * The metric that most probably is what the runs are about.
 * @param {string[]} metrics
 * @param {string} filter
 */
export function objectiveOf(metrics, filter) {
  const ordered = ORDERED.exec(orderOf(filter).field)?.[1];
  const patterns = [/val\w*[ /_.-]?loss/i, /val\w*[ /_.-]?acc/i, /val|test|eval/i, /loss/i, /./];
  return ordered ?? patterns.map((pattern) => metrics.find((name) => pattern.test(name))).find(Boolean) ?? "";
}

/**
 * @param {{all: string[], params: string[], metrics: string[], filter: string, highlighted: Highlighted,
 *   onFilter: (filter: string) => void}} props all: the names of params; params: those of them that are asked
 *   for
 */
function Loaded({ all, params, metrics, filter, highlighted, onFilter }) {
  const objective = color.value || objectiveOf(metrics, filter);
  const marked = markedNames.value.filter((name) => all.includes(name) || metrics.includes(name));
  const columnsText = [
    ...new Set([
      ...params,
      objective,
      ...(chosenAxes.value ?? []),
      scatterX.value,
      scatterY.value,
      ...marked,
    ]),
  ]
    .filter(Boolean)
    .slice(0, 100);
  const question = new URLSearchParams({ limit: String(MAX_RUNS), columns: columnsText.join(",") });
  if (filter) question.set("filter", filter);
  const watched = useWatched(`/runs?${question}`);
  /** @type {Run[]} */
  const runs = watched.data.value?.runs ?? [];
  const axes = Object.fromEntries(
    columnsText.map((name) => [
      name,
      axisOf(
        name,
        runs.map((run) => run.values[name]),
      ),
    ]),
  );
  const varying = params.filter(
    (name) =>
      distinct(runs, name) > 1 &&
      (axes[name]?.kind === "number" || (axes[name]?.texts.length ?? 0) <= MAX_TEXTS),
  );
  const drawn = (chosenAxes.value ?? [...varying.slice(0, MAX_AXES - 1), objective]).filter(
    (name) => axes[name],
  );
  // Without a choice the runs say which axes are drawn. With one the menu stays open while the runs of a
  // newly chosen axis are read.
  const offersAxes = Boolean(watched.data.value || chosenAxes.value);
  const tint = axes[objective];
  /** @param {Run} run */
  const share = (run) => (tint ? shareOf(tint, run.values[objective]) : null);
  const related = importances(
    runs,
    varying.flatMap((name) => axes[name] ?? []),
    objective,
  );
  const [x, y] = [
    scatterX.value || related[0]?.name || varying[0] || params[0] || "",
    scatterY.value || objective,
  ];
  return html`
    <div class="tab-body parameters" tabindex="0" role="region" aria-label="Parameters">
      <${Problem} text=${trouble(watched)} />
      <div class="tab-bar">
        <label>Colour
          by <${Choice} value=${objective} names=${[...metrics, ...all]}
            set=${(/** @type {string} */ name) => setQuery({ color: name })} /></label>
        ${offersAxes && html`<${Axes} names=${[...all, ...metrics]} chosen=${drawn} />`}
        <span class="muted">
          ${watched.data.value ? summaryText(runs, watched.data.value.total, objective) : ""}${
            params.length < all.length
              ? `; of ${all.length} params the ${params.length} that most runs have: choose others under Axes`
              : ""
          }</span>
      </div>
      ${
        watched.data.value &&
        html`<${Parallel} runs=${runs} axes=${drawn.map(
          (name) => axes[name],
        )} all=${axes} share=${share} highlighted=${highlighted} />
        <${Marked} runs=${runs} axes=${axes} filter=${filter} onFilter=${onFilter} />`
      }
      ${tint?.kind === "number" && Number.isFinite(tint.low) && html`<${Legend} axis=${tint} />`}
      <div class="two-charts">
        <section class="card" aria-label="Scatter plot">
          <div class="tab-bar">
            <label>
              Across <${Choice} value=${x} names=${[...all, ...metrics]}
                set=${(/** @type {string} */ name) => setQuery({ sx: name })} /></label>
            <label>
              Up <${Choice} value=${y} names=${[...metrics, ...all]} set=${(/** @type {string} */ name) =>
                setQuery({ sy: name })} /></label>
          </div>
          ${
            axes[x] &&
            axes[y] &&
            html`<${Scatter} runs=${runs} x=${axes[x]} y=${axes[y]} all=${axes} share=${share}
              highlighted=${highlighted} />`
          }
        </section>
        <${Importances} importances=${related.slice(0, 20)} objective=${objective} />
      </div>
    </div>
  `;
}

/** @param {Run[]} runs @param {number} total @param {string} objective */
function summaryText(runs, total, objective) {
  const without = runs.filter((run) => !Number.isFinite(numberOf(run.values[objective]))).length;
  const some =
    total > runs.length ? `the first ${runs.length} of ${total} runs` : counted(runs.length, "run");
  const first = `${some} of the filter, hidden ones too`;
  return without && objective ? `${first}, ${without} of them grey: without a finite ${objective}` : first;
}

/** @param {Run[]} runs @param {string} name */
const distinct = (runs, name) =>
  new Set(runs.map((run) => run.values[name]).filter((value) => value !== undefined && value !== null)).size;

const MAX_CHOICES = 300;

/**
 * The names that a choice offers: of many those that a search finds.
 * @param {string[]} names
 * @param {string[]} chosen which are always among them
 */
function useSearch(names, chosen) {
  const search = useSignal("");
  const matching = search.value ? names.filter(matcher(search.value)) : names;
  const field =
    names.length > MAX_CHOICES &&
    html`<input type="search"
    placeholder=${`Find in ${names.length}`} aria-label="Find names" value=${search.value}
    onInput=${(/** @type {Event} */ event) =>
      (search.value = /** @type {HTMLInputElement} */ (event.target).value)} />`;
  return { field, offered: [...new Set([...chosen.filter(Boolean), ...matching.slice(0, MAX_CHOICES)])] };
}

/** @param {{value: string, names: string[], set: (name: string) => void}} props */
function Choice({ value, names, set }) {
  const { field, offered } = useSearch(
    names,
    names.includes(value) && names.length <= MAX_CHOICES ? [] : [value],
  );
  return html`<select
    value=${value} onChange=${(/** @type {Event} */ event) =>
      set(/** @type {HTMLSelectElement} */ (event.target).value)}>
    ${offered.map(
      (name) => html`<option key=${name} value=${name} selected=${name === value}>${name}</option>`,
    )}
  </select>${field}`;
}

/** @param {{names: string[], chosen: string[]}} props */
function Axes({ names, chosen }) {
  const { field, offered } = useSearch(names, names.length <= MAX_CHOICES ? [] : chosen);
  /** @param {string} name */
  const toggle = (name) => {
    const next = chosen.includes(name) ? chosen.filter((column) => column !== name) : [...chosen, name];
    setQuery({ axes: next.length ? next.join(",") : null });
  };
  return html`<details class="menu">
    <summary>Axes <span class="muted">${chosen.length}</span></summary>
    <fieldset class="menu-body">
      <legend class="sr-only">Axes</legend>
      ${field}
      ${offered.map(
        (name) =>
          html`<label key=${name}>
            <input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${name}
            </label>`,
      )}
    </fieldset>
  </details>`;
}

/** @param {{axis: import("../charts/axis.js").Axis}} props */
function Legend({ axis }) {
  return html`<div class="ramp" role="img"
    aria-label=${`Colours from ${number(axis.low)} to ${number(axis.high)}`}>
    <span>${number(axis.low, 4)}</span>
    <svg viewBox="0 0 120 8" width="120" height="8" aria-hidden="true">
      ${Array.from(
        { length: 24 },
        (_, index) => html`<rect x=${index * 5} y="0" width="5.2" height="8" fill=${shade(index / 23)} />`,
      )}
          </svg>
    <span>${number(axis.high, 4)}
    </span> <span class="muted">${axis.name}${axis.log ? ", by its logarithm" : ""}</span>
  </div>`;
}

/** @typedef {import("../charts/axis.js").Axis} Axis */

/**
 * @param {{runs: Run[], axes: Axis[], all: Record<string, Axis>, share: (run: Run) => number | null,
 *   highlighted: Highlighted}} props all: axes by name, those that are marked among them
 */
function Parallel({ runs, axes, all, share, highlighted }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {ParallelCoordinates | null} */ (null));
  const tip = useSignal(/** @type {{id: string, left: number, top: number} | null} */ (null));
  const brushes = marksOn(all);
  const lines = runs.map((run) => ({
    id: run.id,
    values: axes.map((axis) => run.values[axis.name]),
    share: share(run),
    inside: within(run, brushes, all),
  }));
  const state = { axes, lines, brushes };
  useEffect(() => {
    chart.current = new ParallelCoordinates(/** @type {HTMLDivElement} */ (host.current), state, {
      onBrush: (axis, marked, last) => brush([[axis, marked]], last),
      onHover(id, left, top) {
        highlighted.value = id;
        tip.value = id ? { id, left, top } : null;
      },
    });
    return () => chart.current?.destroy();
  }, []);
  useEffect(
    () => chart.current?.update(state),
    [
      runs,
      axes.map((axis) => axis.name).join(),
      share(runs[0] ?? { id: "", run: "", values: {} }),
      textOf(brushes),
    ],
  );
  useSignalEffect(() => {
    const id = highlighted.value;
    chart.current?.highlight(id);
  });
  const names = axes.map((axis) => axis.name).join(", ");
  const title = `Parallel coordinates of ${counted(runs.length, "run")} on ${names}`;
  return html`
    <div class="parallel" ref=${host} role="img"
      aria-label=${`${title}. The table of runs has the same values.`}>
      ${
        tip.value &&
        html`<${RunTip} run=${runs.find(
          (run) => run.id === tip.value?.id,
        )} pointer=${tip.value} names=${axes.map((axis) => axis.name)} />`
      }
    </div>
  `;
}

/** What is marked, to be compared. @param {ReadonlyMap<string, unknown>} brushes */
const textOf = (brushes) => JSON.stringify([...brushes]);

/** @param {{run: Run | undefined, pointer: {left: number, top: number}, names: string[]}} props */
function RunTip({ run, pointer, names }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    const tip = box.current;
    const width = tip?.parentElement?.clientWidth ?? 0;
    if (!tip) return;
    const left = pointer.left + (pointer.left > width / 2 ? -12 - tip.offsetWidth : 12);
    // Of a phone it may need all.
    tip.style.left = `${Math.max(0, Math.min(width - tip.offsetWidth, left))}px`;
    tip.style.top = `${Math.max(0, pointer.top - tip.offsetHeight / 2)}px`;
  });
  if (!run) return null;
  return html`<div class="run-tip" ref=${box}><strong>${run.run}</strong>
    <dl>${names
      .slice(0, 12)
      .map(
        (name) =>
          html`<div><dt>${name.replace(/^\w+\./, "")}</dt><dd>${display(run.values[name])}</dd></div>`,
      )}
        </dl></div>`;
}

/**
 * @param {{runs: Run[], x: Axis, y: Axis, all: Record<string, Axis>, share: (run: Run) => number | null,
 *   highlighted: Highlighted}} props all: axes by name, those that are marked among them
 */
function Scatter({ runs, x, y, all, share, highlighted }) {
  const host = useRef(/** @type {HTMLDivElement | null} */ (null));
  const chart = useRef(/** @type {ScatterPlot | null} */ (null));
  const tip = useSignal(/** @type {{id: string, left: number, top: number} | null} */ (null));
  const brushes = marksOn(all);
  const points = runs.map((run) => ({
    id: run.id,
    x: run.values[x.name],
    y: run.values[y.name],
    share: share(run),
    inside: within(run, brushes, all),
  }));
  const state = { x, y, points, brushes };
  const axes = useRef({ x, y });
  axes.current = { x, y };
  useEffect(() => {
    chart.current = new ScatterPlot(/** @type {HTMLDivElement} */ (host.current), state, {
      onBrush: (across, up, last) =>
        brush(
          [
            [axes.current.x, across],
            [axes.current.y, up],
          ],
          last,
        ),
      onHover(id, left, top) {
        highlighted.value = id;
        tip.value = id ? { id, left, top } : null;
      },
    });
    return () => chart.current?.destroy();
  }, []);
  useEffect(
    () => chart.current?.update(state),
    [runs, x.name, y.name, share(runs[0] ?? { id: "", run: "", values: {} }), textOf(brushes)],
  );
  useSignalEffect(() => {
    const id = highlighted.value;
    chart.current?.highlight(id);
  });
  return html`<div class="scatter" ref=${host} role="img"
    aria-label=${`${y.name} against ${x.name} of ${counted(runs.length, "run")}`}>
    ${
      tip.value &&
      html`<${RunTip} run=${runs.find(
        (run) => run.id === tip.value?.id,
      )} pointer=${tip.value} names=${[x.name, y.name]} />`
    }
  </div>`;
}
