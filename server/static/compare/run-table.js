/** The table of runs: some dozens of lines in the page, however many there are. */
import { computed, useComputed, useSignal } from "@preact/signals";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { colourOf, styleOf } from "../lib/colours.js";
import { ago, duration, number, shown as shownText, time, timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useShortcuts } from "../lib/keyboard.js";
import { navigate } from "../lib/router.js";
import { highlighted } from "./panel.js";
import * as runs from "./runs.js";
import * as view from "./view.js";

const HEIGHT = 30;
const MARGIN = 4;

/** Fields of every run that can be columns, with how they are shown. @type {Record<string, (run: runs.Run) => string>} */
const FIELDS = {
  started: (run) => time(run.started),
  ended: (run) => time(run.ended),
  seconds: (run) => duration(run.seconds),
};

/** @param {runs.Run} run @param {string} column */
function cell(run, column) {
  const value = column in run ? run[column] : run.values[column];
  return FIELDS[column]?.(run) ?? (typeof value === "number" ? number(value, 4) : shownText(value));
}

/** @param {string} column */
const label = (column) => column.replace(/^(params|metrics|tags)\./, "").replace(/\((params|metrics)\./, "(");

export function RunTable() {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const scroll = useSignal(0);
  const height = useSignal(400);
  const at = useSignal(-1);
  const total = runs.total.value ?? 0;
  const columns = view.columns.value;

  const range = useComputed(() => {
    const from = Math.max(0, Math.floor(scroll.value / HEIGHT) - MARGIN);
    return { from, to: Math.min((runs.total.value ?? 0) - 1, from + Math.ceil(height.value / HEIGHT) + 2 * MARGIN) };
  });
  useEffect(() => {
    const { from, to } = range.value;
    const now = runs.looked.peek();
    if (now.from !== from || now.to !== to) runs.looked.value = { from, to };
  }, [range.value]);
  useLayoutEffect(() => {
    const box = /** @type {HTMLDivElement} */ (scroller.current);
    height.value = box.clientHeight;
    const sized = new ResizeObserver(() => (height.value = box.clientHeight));
    sized.observe(box);
    return () => sized.disconnect();
  }, []);
  useEffect(() => {
    at.value = -1;
    scroller.current?.scrollTo(0, 0);
  }, [view.filter.value]);

  /** @param {number} next */
  const move = (next) => {
    const index = Math.max(0, Math.min((runs.total.peek() ?? 0) - 1, next));
    if ((runs.total.peek() ?? 0) === 0) return;
    at.value = index;
    const box = /** @type {HTMLDivElement} */ (scroller.current);
    const [top, bottom] = [index * HEIGHT, (index + 1) * HEIGHT];
    const room = box.clientHeight - HEIGHT; // the header's
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + room) box.scrollTop = bottom - room;
    highlighted.value = runs.rowAt(index)?.id ?? null;
  };
  const pick = useCallback((/** @type {number} */ index) => void (at.value = index), []);
  const current = () => runs.rowAt(at.peek());
  useShortcuts([
    { keys: "j", does: "the next run", run: () => move(at.peek() + 1) },
    { keys: "k", does: "the run before", run: () => move(at.peek() - 1) },
    { keys: "x", does: "show the run or hide it", run: () => toggle(current()) },
    { keys: "o", does: "show only this run", run: () => current() && view.showOnly(/** @type {runs.Run} */ (current()).id) },
    { keys: "Enter", does: "open the run", run: (event) => openRun(event, current()) },
  ]);

  void runs.changes.value;
  const { from, to } = range.value;
  const lines = [];
  for (let index = from; index <= to; index++) lines.push({ index, run: runs.rowAt(index) });
  const template = `30px minmax(120px, 1fr) 76px ${columns.map(() => "84px").join(" ")}`;
  return html`
    <div class="runs" ref=${scroller} role="grid" aria-label="Runs" aria-rowcount=${total + 1} aria-colcount=${columns.length + 3} tabindex="0"
      aria-activedescendant=${at.value >= from && at.value <= to ? `run-${at.value}` : undefined}
      aria-busy=${runs.loading.value}
      onScroll=${(/** @type {Event} */ event) => (scroll.value = /** @type {HTMLElement} */ (event.target).scrollTop)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => onArrows(event, at.peek(), move, height.peek())}
      onMouseLeave=${() => (highlighted.value = null)}>
      <div class="runs-space" style=${{ height: `${(total + 1) * HEIGHT}px`, minWidth: `${226 + columns.length * 84}px` }}>
        <div class="run-line run-head" role="row" aria-rowindex="1" style=${{ gridTemplateColumns: template }}>
          <span role="columnheader"><span class="sr-only">Shown</span></span>
          <${Head} field="run" name="Run" />
          <${Head} field="status" name="Status" />
          ${columns.map((column) => html`<${Head} key=${column} field=${column} name=${label(column)} numbers />`)}
        </div>
        ${lines.map(
          ({ index, run }) => html`<${Line} key=${index} index=${index} run=${run} columns=${columns} template=${template} at=${at.value === index}
            pick=${pick} />`,
        )}
      </div>
    </div>
  `;
}

/** Show a run or hide it. @param {runs.Run | undefined} run */
function toggle(run) {
  if (run) view.setShown(run.id, !runs.shownSet.peek().has(run.id), runs.byRule.peek().has(run.id));
}

/** @param {KeyboardEvent} event @param {number} at @param {(next: number) => void} move @param {number} height */
function onArrows(event, at, move, height) {
  const page = Math.max(1, Math.floor(height / HEIGHT) - 2);
  const steps = /** @type {Record<string, number>} */ ({ ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity });
  const step = steps[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  move(at + step);
}

/** @param {KeyboardEvent} event @param {runs.Run | undefined} run */
function openRun(event, run) {
  if (event.target instanceof HTMLElement && event.target.matches("button, a, summary")) event.target.click();
  else if (run) navigate(`/runs/${run.id}`);
}

/** @param {{field: string, name: string, numbers?: boolean}} props */
function Head({ field, name, numbers = false }) {
  const { field: by, down } = view.order.value;
  const mine = by === field;
  return html`<span role="columnheader" class=${numbers ? "number" : ""} aria-sort=${mine ? (down ? "descending" : "ascending") : "none"} title=${field}>
    <button class="quiet head" type="button" tabindex="-1" onClick=${() => view.orderBy(field)}>${name}<span aria-hidden="true">${mine ? (down ? "↓" : "↑") : ""}</span></button>
  </span>`;
}

/**
 * A run's line. Whatever it is given stays the same while the run does: one that stays on the screen is not rendered again.
 * @param {{index: number, run: runs.Run | undefined, columns: string[], template: string, at: boolean, pick: (index: number) => void}} props
 */
function Line({ index, run, columns, template, at, pick }) {
  const lit = useMemo(() => computed(() => run !== undefined && highlighted.value === run.id), [run?.id]);
  const style = { top: `${(index + 1) * HEIGHT}px`, gridTemplateColumns: template };
  if (!run) return html`<div class="run-line waiting" role="row" aria-rowindex=${index + 2} style=${style}><span role="gridcell">…</span></div>`;
  const shown = runs.shownSet.value.has(run.id);
  return html`
    <div id=${`run-${index}`} role="row" aria-rowindex=${index + 2} data-run=${run.id} style=${style} aria-selected=${shown}
      class=${`run-line ${shown ? "" : "off"} ${at ? "at" : ""} ${lit.value ? "lit" : ""}`}
      onMouseEnter=${() => (highlighted.value = run.id)} onClick=${() => pick(index)}>
      <span role="gridcell">
        <button class="eye" type="button" role="checkbox" tabindex="-1" aria-checked=${shown} aria-label=${`Show ${run.run}`} title=${shown ? "Hide (x)" : "Show (x)"}
          onClick=${() => toggle(run)}><${Swatch} id=${run.id} on=${shown} /></button>
      </span>
      <span role="gridcell" class="run-name"><a href=${`/runs/${run.id}`} tabindex="-1" title=${`${run.id}, started ${ago(run.started)} (${timeTitle(run.started)})`}>${run.run}</a></span>
      <span role="gridcell"><span class="status" data-status=${run.status}>${run.status}</span></span>
      ${columns.map((column) => {
        const text = cell(run, column);
        return html`<span key=${column} role="gridcell" class="number" title=${text}>${text}</span>`;
      })}
    </div>
  `;
}

/**
 * What a run's line looks like in the charts.
 * @param {{id: string, on?: boolean}} props
 */
export function Swatch({ id, on = true }) {
  return html`<svg class="swatch" viewBox="0 0 18 10" width="18" height="10" aria-hidden="true">
    ${on
      ? html`<path d="M1 5h16" stroke=${colourOf(id)} stroke-width="2.5" stroke-dasharray=${styleOf(id).dash.map((each) => each * 0.6).join(" ")} />`
      : html`<circle cx="9" cy="5" r="3" fill="none" stroke="currentColor" stroke-width="1.2" />`}
  </svg>`;
}
