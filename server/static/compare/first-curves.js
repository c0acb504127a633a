/**
 * The first questions for curves, asked as soon as it is known which runs and metrics there are: the server
 * reads curves while the browser reads the page. What the page turns out to need besides, it asks for itself.
 */
import { here } from "../lib/base.js";
import { parsed } from "../lib/json.js";
import { acrossOf, layout, linesWithin, matcher, metricsOf } from "./layout.js";
import { axisOf, posted, questionsOf, topOf } from "./questions.js";
import { widthIn } from "./side.js";

const ABOVE = 84; // the panels: the page's header and the tools

/** @type {import("../lib/api.js").Early} */
const early = /** @type {any} */ (window).early;

/** @param {string} path the beginning of what early.js has asked for */
async function answered(path) {
  const [, answer] = [...early.answers].find(([address]) => address.startsWith(path)) ?? [];
  const response = await answer;
  if (!response?.ok) return null;
  const body = response.text().then(parsed);
  early.bodies.set(response, body);
  return body;
}

async function ask() {
  const view = new URLSearchParams(location.search);
  if (["tab", "show", "hide"].some((name) => view.has(name))) return;
  const [listed, names] = await Promise.all([answered("/runs?"), answered("/runs/columns?")]);
  if (!listed || !names || early.taken) return;
  const runs = listed.runs.slice(0, topOf(view.get("top"))).map((/** @type {{id: string}} */ run) => run.id);
  const metrics = metricsOf(names.metrics, false).filter(matcher(view.get("metrics") ?? ""));
  const width = innerWidth - widthIn(innerWidth);
  const { lines } = layout(metrics, acrossOf(width), new Set(view.getAll("fold")));
  const keys = linesWithin(lines, 0, innerHeight - ABOVE).flatMap((line) =>
    line.kind === "row" ? line.names : [],
  );
  if (!runs.length || !keys.length) return;
  /** @type {Promise<unknown>} */
  let before = Promise.resolve();
  for (const question of questionsOf(axisOf(view.get("x")), keys, runs)) {
    const answer = before
      .then(() => fetch(here("/api/v1/curves"), { credentials: "same-origin", ...posted(question) }))
      .catch(() => null);
    early.curves.push({ question, answer });
    before = answer; // one after the other, as the page asks: both at once, and the first panel waits for all
  }
}

// A body that breaks off is asked for again by the page.
ask().catch(() => {});
