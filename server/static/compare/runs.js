/**
 * The runs that the filter chooses: fetched by windows where they are looked at, kept up to date by their
 * ETag.
 */
import { computed, effect, signal } from "@preact/signals";
import { ApiError, jsonOf, request } from "../lib/api.js";
import { setQuery } from "../lib/url-state.js";
import * as pinned from "./pinned.js";
import * as view from "./view.js";

export { pinned };
export const PAGE = 200;
const EVERY_MS = 2000;
const RETRY_MS = 5000;

/**
 * @typedef {{id: string, project: string, run: string, status: string, started: string, ended: string | null,
 *   seconds: number | null, epoch: number | null, values: Record<string, any>, [name: string]: any}} Run
 * @typedef {{etag: string, rows: Run[]}} Window
 */

/** How many runs there are. */
export const total = signal(/** @type {number | null} */ (null));
/** What the server says of the filter or of itself. */
export const error = signal(/** @type {ApiError | null} */ (null));
export const loading = signal(true);
/** Counts what is new in `windows`. */
export const changes = signal(0);
/** The index's revision, for what else is made of the same runs. */
export const revision = signal(-1);
/** Rows that the table shows. */
export const looked = signal({ from: 0, to: 40 });

/** @type {Map<number, Window>} */
let windows = new Map();
let lastQuestion = "";
let timer = 0;
/**
 * Whether Compare was just opened: without a filter and columns the server chooses what is looked at first.
 */
let opening = false;
/** @type {AbortController | null} */
let asking = null;

/** @param {number} index */
export function rowAt(index) {
  return windows.get(Math.floor(index / PAGE))?.rows[index % PAGE];
}

/** Runs of the first `count` places that are known. @param {number} count */
export function firstRows(count) {
  void changes.value;
  const rows = [];
  for (let index = 0; index < Math.min(count, total.value ?? 0); index++) {
    const row = rowAt(index);
    if (row) rows.push(row);
  }
  return rows;
}

/** The one run of a page of its own, in place of those that the filter chooses. */
export const only = signal(/** @type {Run | null} */ (null));

/**
 * Ids of the address that are or were runs: what else is in it is not asked for, nor what nobody has looked
 * for yet.
 * @type {Set<string>}
 */
const everKnown = new Set();

/**
 * The ids that are shown: the first `top` of the order without those hidden, and those that are shown
 * besides.
 */
const shownText = computed(() => {
  if (only.value) return only.value.id;
  const hidden = new Set(view.hiddenIds.value);
  const ids = firstRows(view.top.value).map((row) => row.id);
  for (const id of view.shownIds.value) if (rowOf.value.has(id)) everKnown.add(id);
  const besides = view.shownIds.value.filter((id) => everKnown.has(id) && !pinned.gone.value.has(id));
  return [...new Set([...ids.filter((id) => !hidden.has(id)), ...besides])].join(",");
});
export const shownIds = computed(() => (shownText.value ? shownText.value.split(",") : []));
export const shownSet = computed(() => new Set(shownIds.value));
export const byRule = computed(() => new Set(firstRows(view.top.value).map((row) => row.id)));

/** What rows were last, by id, for tooltips and legends. */
export const rowOf = computed(() => {
  void changes.value;
  /** @type {Map<string, Run>} */
  const rows = new Map();
  for (const window of windows.values()) for (const row of window.rows) rows.set(row.id, row);
  for (const [id, row] of pinned.rows.value) if (!rows.has(id)) rows.set(id, row);
  if (only.value) rows.set(only.value.id, only.value);
  return rows;
});

const LIVE = new Set(["running", "unfinished"]);
/** Whether a run may still log, as far as is known. @param {string} id */
export const isLive = (id) => LIVE.has(rowOf.value.get(id)?.status ?? "");

function wanted() {
  const pages = new Set();
  for (let page = 0; page * PAGE < Math.max(1, view.top.peek()); page++) pages.add(page);
  const { from, to } = looked.peek();
  for (let page = Math.floor(from / PAGE); page <= Math.floor(to / PAGE); page++) pages.add(page);
  return [...pages].filter((page) => page === 0 || page * PAGE < (total.peek() ?? 0));
}

async function look() {
  clearTimeout(timer);
  asking?.abort();
  const here = new AbortController();
  asking = here;
  const columns = columnsOf(view.columns.peek());
  let question = questionOf(view.filter.peek(), columns);
  if (opening && !view.filter.peek() && !columns.length) question += "&first_view=true"; // as early.js asks
  const fresh = question !== lastQuestion;
  if (fresh) loading.value = true;
  let wait = EVERY_MS;
  try {
    const answers = await Promise.all(
      wanted().map((page) => fetchWindow(page, question, fresh, here.signal)),
    );
    if (here.signal.aborted) return;
    let changed = fresh;
    /** @type {{filter: string, columns: string[]} | null} */
    let chosen = null;
    const next = new Map(fresh ? [] : windows);
    for (const [page, etag, body] of answers) {
      if (!body) continue;
      changed = true;
      next.set(page, { etag, rows: body.runs });
      total.value = body.total;
      revision.value = body.revision;
      if (body.view) chosen = body.view;
    }
    opening = opening && !chosen && total.value === 0; // an index that is built just now has no sweep yet
    if (changed) {
      windows = forgotten(next);
      // So what is here answers what is asked next.
      lastQuestion = chosen ? questionOf(chosen.filter, columnsOf(chosen.columns)) : question;
      changes.value += 1;
    }
    // The URL is the whole view, as ever; looks again.
    if (chosen) setQuery({ filter: chosen.filter, columns: chosen.columns.join(",") });
    if (here.signal.aborted) return;
    const loaded = new Set([...windows.values()].flatMap((window) => window.rows.map((row) => row.id)));
    await pinned.look(
      view.shownIds.peek().filter((id) => !loaded.has(id)),
      columns.join(","),
      here.signal,
    );
    if (here.signal.aborted) return;
    error.value = null;
  } catch (failure) {
    if (here.signal.aborted) return;
    if (!(failure instanceof ApiError)) throw failure;
    error.value = failure;
    wait = failure.passing ? 1000 * (failure.retry ?? RETRY_MS / 1000) : 0;
  }
  loading.value = false;
  if (wait && !document.hidden) timer = window.setTimeout(look, wait);
}

/** @param {string} filter @param {readonly string[]} columns */
function questionOf(filter, columns) {
  const query = new URLSearchParams({ limit: String(PAGE) });
  if (filter) query.set("filter", filter);
  if (columns.length) query.set("columns", columns.join(","));
  return query.toString();
}

/** What is asked of each run: its columns, and what groups it. @param {readonly string[]} columns */
const columnsOf = (columns) => [...new Set([...columns, view.group.peek()])].filter(Boolean);

/**
 * @param {number} page
 * @param {string} question
 * @param {boolean} fresh
 * @param {AbortSignal} signal
 * @returns {Promise<[number, string, any]>}
 */
async function fetchWindow(page, question, fresh, signal) {
  const window = fresh ? undefined : windows.get(page);
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (window?.etag) headers["If-None-Match"] = window.etag;
  const response = await request(`/runs?${question}&offset=${page * PAGE}`, {
    headers,
    signal,
    cache: "no-store",
  });
  return [page, response.headers.get("ETag") ?? "", response.status === 304 ? null : await jsonOf(response)];
}

/**
 * Windows that nobody looks at are not kept up to date, so they go when something changed.
 * @param {Map<number, Window>} next
 */
function forgotten(next) {
  const kept = new Set(wanted());
  return new Map([...next].filter(([page]) => kept.has(page)));
}

/** Follow the runs while Compare is open. */
export function follow() {
  opening = true;
  const stop = effect(() => {
    void [view.filter.value, view.columns.value, view.group.value, view.top.value, view.shownIds.value];
    void Math.floor(looked.value.from / PAGE);
    schedule();
  });
  const visible = () => {
    if (!document.hidden) look();
  };
  document.addEventListener("visibilitychange", visible);
  return () => {
    stop();
    document.removeEventListener("visibilitychange", visible);
    clearTimeout(timer);
    key = "";
    asking?.abort();
  };
}

let key = "";
/** Look again where the question or the window is another one. */
function schedule() {
  const { from, to } = looked.value;
  const next = [
    view.filter.value,
    view.columns.value.join(","),
    view.group.value,
    view.top.value,
    view.shownIds.value.join(","),
    Math.floor(from / PAGE),
    Math.floor(Math.max(0, to) / PAGE),
  ].join("|");
  if (next === key) return;
  key = next;
  void look();
}
