/** A shared page: what was sent, as it was when it was made. It asks nobody for anything. */
import { useMemo } from "preact/hooks";
import { render } from "preact";
import { Facts as Pairs } from "../components/bits.js";
import { Problem } from "../components/problem.js";
import { counted, sentence, timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";
import { choice, choose, theme } from "../lib/theme.js";
import { Notes } from "./notes.js";
import { Panel } from "./panel.js";
import { read } from "./payload.js";
import { Record } from "./record.js";
import { Runs } from "./runs.js";
import * as state from "./state.js";
import { Sweep } from "./sweep.js";
import { Tools } from "./tools.js";

/** @typedef {import("./payload.js").Facts} Facts */

/** @param {{facts: Facts, curves: state.Curves}} props */
function SharedPage({ facts, curves }) {
  const searched = state.search.value.trim().toLowerCase();
  const panels = useMemo(() => facts.metrics.map((name, index) => ({ name, index })), [facts]);
  return html`
    <main class="page shared">
      <header class="page-top">
        <h1>${facts.title}</h1>
        <div class="actions"><${Theme} /></div>
      </header>
      <p class="muted made">${madeWords(facts)}</p>
      ${
        facts.kind === "view" &&
        html`<${Pairs} pairs=${[
          ["filter", html`<code>${facts.filter || "all runs, newest first"}</code>`],
          ["lines", facts.group && html`mean ± standard deviation of the runs with the same <code>${facts.group}</code>`],
        ]} />`
      }
      ${facts.leftOut.length > 0 && html`<p class="muted">Not here: ${facts.leftOut.map(sentence).join(" ")}</p>`}
      ${facts.sweep && html`<${Sweep} sweep=${facts.sweep} />`}
      ${
        facts.metrics.length
          ? html`<${Tools} facts=${facts} />`
          : html`<p class="muted">No numbers were logged.</p>`
      }
      <div class="shared-panels">
        ${panels
          .filter(({ name }) => name.toLowerCase().includes(searched))
          .map(({ name, index }) => html`<${Panel} key=${name} name=${name} index=${index} curves=${curves} />`)}
      </div>
      <${Notes} notes=${facts.notes} />
      ${facts.kind !== "run" && facts.runs.length > 0 && html`<${Runs} facts=${facts} />`}
      ${facts.record && html`<${Record} record=${facts.record} />`}
    </main>
  `;
}

/** @param {Facts} facts */
function madeWords(facts) {
  const by = facts.by ? ` by ${facts.by}` : "";
  const runs = counted(facts.runs.length, "run");
  const curves = counted(facts.curves.length, "curve");
  return `Made on ${timeTitle(facts.made)}${by}: ${runs} with ${curves}, as they were then.`;
}

function Theme() {
  const other = theme.value === "dark" ? "light" : "dark";
  return html`<button type="button" class="quiet" data-theme-choice=${choice.value}
    onClick=${() => choose(other)}>${other === "dark" ? "Dark" : "Light"}</button>`;
}

async function show() {
  const app = /** @type {HTMLElement} */ (document.querySelector("#app"));
  try {
    if (!("DecompressionStream" in window))
      throw new Error("this browser cannot unpack the page's data: it needs one of 2023 or newer");
    const { facts, curves } = await read(document.querySelector("#data")?.textContent ?? "");
    state.begin(facts);
    render(html`<${SharedPage} facts=${facts} curves=${curves} />`, app);
  } catch (failure) {
    const reason = failure instanceof Error ? failure.message : String(failure);
    render(html`<main class="page"><h1>This page cannot be shown</h1><${Problem} text=${reason} /></main>`, app);
    throw failure;
  }
}

void show();
