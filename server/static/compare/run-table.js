/** The table of runs: some dozens of lines in the page, however many there are. */
import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Empty } from "../components/bits.js";
import { html } from "../lib/html.js";
import { useShortcuts } from "../lib/keyboard.js";
import { keep, kept, navigate } from "../lib/router.js";
import { highlighted } from "./panel.js";
import { HEIGHT, Line, titleOf } from "./run-line.js";
import * as runs from "./runs.js";
import * as view from "./view.js";

const MARGIN = 2;
const MIN_LINE = 220; // px of a line without columns
const COLUMN = 84;
const PLACE = "runs"; // the name of this table's scroll in the history

/** @param {string} column */
const label = (column) => column.replace(/^(params|metrics|tags)\./, "").replace(/\((params|metrics)\./, "(");

/** @typedef {{index: number, run: runs.Run | undefined}} Place */

export function RunTable() {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const scroll = useSignal(kept(PLACE));
  const goal = useRef(/** @type {number | null} */ (null)); // where to scroll when the runs are there
  const height = useSignal(400);
  const chosen = useSignal(NOBODY);
  const pointed = useRef(false);
  const total = runs.total.value ?? 0;
  const columns = view.columns.value;

  // Each line of the page is a slot: a run that scrolls in takes the elements of one that scrolled out.
  const slots = useComputed(() => Math.ceil(height.value / HEIGHT) + 2 * MARGIN + 1);
  const range = useComputed(() => {
    const from = Math.max(0, Math.floor(scroll.value / HEIGHT) - MARGIN);
    return { from, to: Math.min((runs.total.value ?? 0) - 1, from + slots.value - 1) };
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
  useLayoutEffect(() => {
    chosen.value = NOBODY;
    goal.current = kept(PLACE);
  }, [view.filter.value]);

  void runs.changes.value;
  const { from, to } = range.value;
  /** @type {Place[]} */
  const lines = [];
  for (let index = from; index <= to; index++) lines.push({ index, run: runs.rowAt(index) });

  // Runs that come or go above do not move what is looked at: whoever has scrolled, or points at a line,
  // keeps the runs that are there.
  const before = useRef(lines);
  useLayoutEffect(() => {
    const box = /** @type {HTMLDivElement} */ (scroller.current);
    const now = chosen.peek();
    if (goal.current !== null) {
      box.scrollTop = goal.current;
      if (!runs.loading.peek()) goal.current = null;
    } else {
      const places = placesNear(before.current);
      const rows = shiftOf(before.current, places);
      if (rows && (box.scrollTop > 0 || pointed.current)) scroll.value = box.scrollTop += rows * HEIGHT;
      const index = places.get(now.id);
      if (index !== undefined && index !== now.index) chosen.value = { ...now, index };
    }
    // It was not there yet when the keys came to it.
    if (now.index >= 0 && !now.id) chosen.value = placeAt(now.index);
  }, [runs.changes.value, total, runs.loading.value]);
  useLayoutEffect(() => void (before.current = lines));

  /** @param {number} next */
  const move = (next) => {
    if ((runs.total.peek() ?? 0) === 0) return;
    const index = Math.max(0, Math.min((runs.total.peek() ?? 0) - 1, next));
    chosen.value = placeAt(index);
    const box = /** @type {HTMLDivElement} */ (scroller.current);
    const [top, bottom] = [index * HEIGHT, (index + 1) * HEIGHT];
    const room = box.clientHeight - HEIGHT; // the header's
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + room) box.scrollTop = bottom - room;
    highlighted.value = chosen.peek().id || null;
  };
  useShortcuts([
    { keys: "j", does: "the next run", run: () => move(chosen.peek().index + 1) },
    { keys: "k", does: "the run before", run: () => move(chosen.peek().index - 1) },
    { keys: "x", does: "show the run or hide it", run: () => toggle(chosen.peek().id) },
    { keys: "o", does: "show only this run", run: () => chosen.peek().id && view.showOnly(chosen.peek().id) },
    {
      keys: "Enter",
      does: "open the run",
      run: () => chosen.peek().id && navigate(`/runs/${chosen.peek().id}`),
    },
  ]);
  const scrolled = () => {
    scroll.value = /** @type {HTMLDivElement} */ (scroller.current).scrollTop;
    if (goal.current === null) keep(PLACE, scroll.peek());
  };
  /** @param {MouseEvent} event */
  const clicked = (event) => {
    const run = runUnder(event);
    if (!run) return;
    if (/** @type {Element} */ (event.target).closest(".eye")) toggle(run.id);
    const line = lines.find((other) => other.run?.id === run.id);
    if (line) chosen.value = { index: line.index, id: run.id };
  };
  /**
   * By moves alone: lines that pass under a resting pointer while it scrolls are not pointed at.
   * @param {MouseEvent} event
   */
  const pointedAt = (event) => {
    pointed.current = true;
    const run = runUnder(event);
    highlighted.value = run?.id ?? null;
    const part = /** @type {Element} */ (event.target).closest("[role=gridcell]");
    if (run && part)
      /** @type {HTMLElement} */ (part).title = titleOf(/** @type {Element} */ (event.target), run);
  };
  const left = () => {
    pointed.current = false;
    highlighted.value = null;
  };
  const empty = runs.total.value === 0 && !runs.loading.value;
  const { index: position, id } = chosen.value;
  return html`
    <div class="runs" ref=${scroller} role="grid" aria-label="Runs"
      aria-rowcount=${total + 1} aria-colcount=${columns.length + 3} tabindex="0"
      aria-activedescendant=${
        position >= from && position <= to ? `run-${position}` : undefined
      } aria-busy=${runs.loading.value} data-empty=${empty}
      onScroll=${scrolled} onClick=${clicked} onMouseMove=${pointedAt} onMouseLeave=${left}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) =>
        onArrows(event, chosen.peek().index, move, height.peek())}>
      <div class="runs-space"
        style=${{ height: `${(total + 1) * HEIGHT}px`, minWidth: `${MIN_LINE + columns.length * COLUMN}px` }}>
        <div class="run-line run-head" role="row" aria-rowindex="1">
          <span role="columnheader"><span class="sr-only">Shown</span></span>
          <${Head} field="run" name="Run" kind="run-name" />
          <${Head} field="status" name="Status" kind="status" />
          ${columns.map(
            (column) => html`<${Head} key=${column} field=${column} name=${label(column)} kind="number" />`,
          )}
        </div>
        ${lines.map(
          ({ index, run }) =>
            html`<${Line} key=${index % slots.value} index=${index} run=${run} columns=${columns}
              isCurrent=${id && run ? run.id === id : index === position} />`,
        )}
      </div>
    </div>
    ${empty && html`<${NoRuns} />`}
  `;
}

/** The run that the keys stand on: by its id, since its index is another one when runs come above it. */
const NOBODY = { index: -1, id: "" };

/** @param {number} index */
const placeAt = (index) => ({ index, id: runs.rowAt(index)?.id ?? "" });

/** Where runs are now, up to a window's length around where lines were. @param {Place[]} lines */
function placesNear(lines) {
  /** @type {Map<string, number>} */
  const lineOfRun = new Map();
  const [first, last] = [lines[0]?.index ?? 0, lines.at(-1)?.index ?? 0];
  for (let index = Math.max(0, first - runs.PAGE); index <= last + runs.PAGE; index++) {
    const id = runs.rowAt(index)?.id;
    if (id) lineOfRun.set(id, index);
  }
  return lineOfRun;
}

/**
 * By how many rows the runs of these lines have moved together: 0 where not most of them did, as when they
 * are in another order.
 * @param {Place[]} lines
 * @param {Map<string, number>} places
 */
function shiftOf(lines, places) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const { index, run } of lines) {
    const place = run && places.get(run.id);
    if (place !== undefined) counts.set(place - index, (counts.get(place - index) ?? 0) + 1);
  }
  for (const [shift, count] of counts) if (count > lines.length / 2) return shift;
  return 0;
}

/** @param {Event} event */
function runUnder(event) {
  const line = event.target instanceof Element ? event.target.closest("[data-run]") : null;
  return line instanceof HTMLElement ? runs.rowOf.peek().get(line.dataset.run ?? "") : undefined;
}

/** Show a run or hide it. @param {string} id */
function toggle(id) {
  if (id) view.setShown(id, !runs.shownSet.peek().has(id), runs.byRule.peek().has(id));
}

/**
 * @param {KeyboardEvent} event
 * @param {number} position
 * @param {(next: number) => void} move
 * @param {number} height
 */
function onArrows(event, position, move, height) {
  const page = Math.max(1, Math.floor(height / HEIGHT) - 2);
  const steps = /** @type {Record<string, number>} */ ({
    ArrowDown: 1,
    ArrowUp: -1,
    PageDown: page,
    PageUp: -page,
    Home: -Infinity,
    End: Infinity,
  });
  const step = steps[event.key];
  if (step === undefined || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  move(position + step);
}

const ASCENDING = { name: "ascending", arrow: "↑" };
const DESCENDING = { name: "descending", arrow: "↓" };
const NO_ORDER = { name: "none", arrow: "" };

/** @param {{field: string, name: string, kind: string}} props */
function Head({ field, name, kind }) {
  const { field: by, down } = view.order.value;
  const mine = by === field;
  let direction = NO_ORDER;
  if (mine) direction = down ? DESCENDING : ASCENDING;
  return html`<span role="columnheader"
    class=${kind} aria-sort=${direction.name} title=${field}>
    <button class="quiet head" type="button" onClick=${() => view.orderBy(field)}>
      <span class="head-name">${name}</span><span aria-hidden="true">${direction.arrow}</span>
      </button>
  </span>`;
}

/** Why there is no line, and what to do about it. */
function NoRuns() {
  if (view.filter.value) {
    return html`<div class="no-runs"><p>No run matches the filter.</p>
      <button type="button" onClick=${() => view.setFilter("")}>Clear the filter</button></div>`;
  }
  return html`<div class="no-runs">
    <${Empty} title="No run was recorded yet" command="halving sweep sweeps/digits.yaml">
    A script records one with halving.init, and a sweep one for each trial. This sweep takes a minute:
  <//></div>`;
}
