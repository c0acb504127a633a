/** The table of a page's runs: what differs between them and what they reached; also the charts' legend. */
import { useMemo } from "preact/hooks";
import { Badge } from "../components/bits.js";
import { colourOf, styleOf } from "../lib/colours.js";
import { NONE, counted, duration, number, param, timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";
import { compared } from "../lib/order.js";
import * as state from "./state.js";

/** @typedef {import("./payload.js").Facts} Facts */
/** @typedef {import("./payload.js").Run} Run */
/**
 * @typedef {{name: string, title: string, right: boolean, valueOf: (run: Run) => unknown, text?: (value:
 *   unknown, run: Run) => unknown}} Column
 */

const PARTS = /^(min|max|best)\((?:metrics\.)(.+)\)$/; // the best is known to the server alone

/** @param {{facts: Facts}} props */
export function Runs({ facts }) {
  const columns = useMemo(() => columnsOf(facts), [facts]);
  const rows = ordered(facts.runs, columns);
  const all = state.hidden.value.size === 0;
  return html`
    <section class="card runs-card">
      <div class="card-top"><h2>Runs <span class="count">${shownWords(facts)}</span></h2>
        <span class="actions">
          <button type="button" class="small" onClick=${() => state.turnAll(!all)}>
            ${all ? "Hide all" : "Show all"}</button></span></div>
      <div class="scroll tall" tabindex="0" role="region" aria-label="Runs">
        <table class="shared-runs">
          <thead><tr>
            <th scope="col"><span class="sr-only">Shown</span></th>
            ${columns.map((column) => html`<${Head} key=${column.name} column=${column} />`)}
          </tr></thead>
          <tbody>${rows.map((run) => html`<${Line} key=${run.id} run=${run} columns=${columns} />`)}</tbody>
        </table>
      </div>
    </section>
  `;
}

/** @param {Facts} facts */
function shownWords(facts) {
  const count = state.visible.value.size;
  return `${count} of ${counted(facts.runs.length, "run")} shown`;
}

/** @param {{column: Column}} props */
function Head({ column }) {
  const { name, title, right } = column;
  /** @type {"none" | "ascending" | "descending"} */
  let direction = "none";
  if (state.order.value === name) direction = "ascending";
  if (state.order.value === `-${name}`) direction = "descending";
  const next = { none: name, ascending: `-${name}`, descending: "" }[direction];
  return html`<th scope="col" class=${right ? "right" : ""} aria-sort=${direction}>
    <button class="quiet sort" type="button" title=${name} onClick=${() => (state.order.value = next)}>${title}
      <span aria-hidden="true">${{ none: "", ascending: " ↑", descending: " ↓" }[direction]}</span></button>
  </th>`;
}

/** @param {{run: Run, columns: Column[]}} props */
function Line({ run, columns }) {
  const isShown = state.visible.value.has(run.id);
  const light = (/** @type {string | null} */ id) => () => (state.highlighted.value = id);
  return html`<tr data-run=${run.id} class=${isShown ? "" : "off"}
    onMouseEnter=${light(run.id)} onMouseLeave=${light(null)}>
    <td><button class="eye" type="button" role="checkbox" aria-checked=${isShown}
      aria-label=${`Show ${run.run}`} onClick=${() => state.turn(run.id)}>
      ${isShown && html`<${Swatch} id=${state.lineOf(run.id)} />`}</button></td>
    ${columns.map((column) => {
      const value = column.valueOf(run);
      const text = column.text ? column.text(value, run) : param(value === undefined ? NONE : value);
      return html`<td key=${column.name} class=${`param ${column.right ? "right" : ""}`}
        title=${typeof text === "string" ? text : undefined}>${text}</td>`;
    })}
  </tr>`;
}

/** What a run's line looks like in the charts. @param {{id: string}} props */
function Swatch({ id }) {
  const dashes = styleOf(id)
    .dash.map((length) => length * 0.6)
    .join(" ");
  return html`<svg class="swatch" viewBox="0 0 18 10" width="18" height="10" aria-hidden="true">
    <path d="M1 5h16" stroke=${colourOf(id)} stroke-width="2.5" stroke-dasharray=${dashes} /></svg>`;
}

/** @param {Facts} facts @returns {Column[]} */
function columnsOf(facts) {
  const several = new Set(facts.runs.map((run) => run.project)).size > 1;
  /** @type {Column[]} */
  const columns = [
    {
      name: "run",
      title: "Run",
      right: false,
      valueOf: (run) => (several ? run.id : run.run),
    },
    {
      name: "status",
      title: "Status",
      right: false,
      valueOf: (run) => run.status,
      text: (value) => html`<${Badge} status=${/** @type {string} */ (value)} />`,
    },
  ];
  const names = [
    ...facts.columns,
    ...facts.metrics.map((name) => `metrics.${name}`),
    ...facts.params.map((name) => `params.${name}`),
    "started",
    "seconds",
  ];
  const present = new Set(["run", "status"]);
  for (const field of names) {
    const column = columnOf(unquoted(field));
    if (present.has(column.name)) continue;
    present.add(column.name);
    columns.push({ ...column, valueOf: (run) => run.columns[field] ?? column.valueOf(run) });
  }
  return columns;
}

/** A field without the quotes that a filter needs. @param {string} field */
const unquoted = (field) =>
  field.replace(/^((?:min|max|best)\()?((?:params|metrics|tags)\.)"(.*)"(\))?$/s, (_, open, kind, name, close) =>
    [open, kind, name.replaceAll('""', '"'), close].join(""),
  );

/** @param {string} name @returns {Column} */
function columnOf(name) {
  const part = PARTS.exec(name);
  if (part) {
    const valueOf = (/** @type {Run} */ run) =>
      run.metrics[part[2] ?? ""]?.[/** @type {"min" | "max"} */ (part[1])];
    return { name, title: `${part[1]} ${part[2]}`, right: true, valueOf, text: (value) => number(value) };
  }
  const [kind, rest] = [name.slice(0, name.indexOf(".")), name.slice(name.indexOf(".") + 1)];
  if (kind === "metrics")
    return {
      name,
      title: rest,
      right: true,
      valueOf: (run) => run.metrics[rest]?.last,
      text: (value) => number(value),
    };
  if (kind === "params" || kind === "tags")
    return { name, title: rest, right: kind === "params", valueOf: (run) => run[kind][rest] };
  if (name === "started" || name === "ended")
    return {
      name,
      title: name,
      right: false,
      valueOf: (run) => run[name],
      text: (value) => timeTitle(/** @type {string} */ (value)).slice(0, "2026-11-28 14:06".length) || NONE,
    };
  if (name === "seconds")
    return { name, title: "duration", right: true, valueOf: (run) => run.seconds, text: duration };
  return { name, title: name, right: true, valueOf: (run) => run[name] };
}

/** @param {Run[]} runs @param {Column[]} columns */
function ordered(runs, columns) {
  const down = state.order.value.startsWith("-");
  const column = columns.find(({ name }) => name === state.order.value.slice(down ? 1 : 0));
  if (!column) return runs;
  const keyed = runs.map((run) => ({ run, value: column.valueOf(run) ?? null }));
  keyed.sort((left, right) => {
    if (left.value === null || right.value === null)
      return Number(left.value === null) - Number(right.value === null);
    return (down ? -1 : 1) * compared(left.value, right.value);
  });
  return keyed.map(({ run }) => run);
}
