/**
 * Runs that are shown by their ids, though the filter does not choose them or nobody has scrolled to them.
 */
import { signal } from "@preact/signals";
import { jsonOf, request } from "../lib/api.js";

const CHARACTERS = 6000; // of a filter, which may have 8,000

/** @typedef {import("./runs.js").Run} Run */

/** What is known of them, by id. */
export const rows = signal(/** @type {Map<string, Run>} */ (new Map()));
/** Ids that are no runs, or are no more. */
export const gone = signal(/** @type {ReadonlySet<string>} */ (new Set()));

/** What was answered last, by question. @type {Map<string, {etag: string, runs: Run[]}>} */
let answers = new Map();

/**
 * Look at some runs.
 * @param {string[]} ids
 * @param {string} columns
 * @param {AbortSignal} signal
 */
export async function look(ids, columns, signal) {
  /** @type {typeof answers} */
  const next = new Map();
  for (const part of parts(ids.filter((id) => id.includes("/")))) {
    const question = new URLSearchParams({
      filter: part,
      limit: "1000",
      ...(columns ? { columns } : {}),
    }).toString();
    const cached = answers.get(question);
    /** @type {Record<string, string>} */
    const headers = { Accept: "application/json", ...(cached ? { "If-None-Match": cached.etag } : {}) };
    const response = await request(`/runs?${question}`, { headers, signal, cache: "no-store" });
    const runs = response.status === 304 ? (cached?.runs ?? []) : (await jsonOf(response)).runs;
    next.set(question, { etag: response.headers.get("ETag") ?? "", runs });
  }
  if (signal.aborted) return;
  const isNews =
    next.size !== answers.size ||
    [...next].some(([question, { runs }]) => answers.get(question)?.runs !== runs);
  answers = next;
  const runsById = new Map([...next.values()].flatMap(({ runs }) => runs).map((run) => [run.id, run]));
  const missing = ids.filter((id) => !runsById.has(id));
  if (isNews) rows.value = runsById;
  if (missing.length !== gone.peek().size || missing.some((id) => !gone.peek().has(id)))
    gone.value = new Set(missing);
}

/** Filters that choose runs by their ids, none too long. @param {string[]} ids */
function parts(ids) {
  const conditions = ids.map((id) => {
    const slash = id.indexOf("/");
    return `(project = ${quoted(id.slice(0, slash))} and run = ${quoted(id.slice(slash + 1))})`;
  });
  /** @type {string[]} */
  const questions = [];
  for (const condition of conditions) {
    const last = questions.at(-1);
    if (last !== undefined && last.length + condition.length < CHARACTERS)
      questions[questions.length - 1] = `${last} or ${condition}`;
    else questions.push(condition);
  }
  return questions;
}

/** @param {string} text */
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
