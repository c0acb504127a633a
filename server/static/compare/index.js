/** Compare: the runs on the left, what is known of the shown ones on the right. */
import { effect, useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { Later } from "../components/later.js";
import { Problem } from "../components/problem.js";
import { ShareAsFile } from "../components/share.js";
import { dress } from "../lib/colours.js";
import { counted } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useShortcuts } from "../lib/keyboard.js";
import { query, readable } from "../lib/url-state.js";
import { Columns, GroupBy } from "./choosers.js";
import * as curves from "./curve-store.js";
import { FilterLine } from "./filter-line.js";
import { GroupTable } from "./group-table.js";
import { lines } from "./groups.js";
import * as live from "./live.js";
import * as names from "./names.js";
import { highlighted } from "./panel.js";
import { Panels } from "./panels.js";
import { RunTable } from "./run-table.js";
import * as runs from "./runs.js";
import { SideHandle, width } from "./side-handle.js";
import { AxisTools, MetricSearch, open, SystemTools, Tabs } from "./toolbar.js";
import * as view from "./view.js";
import { ViewsButton } from "./views-button.js";

/** Tabs that are not there at first: their modules are fetched when they are opened. */
const LATER = {
  parameters: async () => (await import("./parameters.js")).Parameters,
  media: async () => (await import("./media.js")).Media,
  diff: async () => (await import("./diff.js")).Diff,
};

export default function Compare() {
  const folded = useSignal(false);
  useLayoutEffect(() => {
    document.title = "Compare · Halving";
    const stops = [
      runs.follow(),
      effect(() => dress(lines.value)),
      names.follow(),
      curves.follow(),
      live.follow(),
    ];
    return () => stops.forEach((stop) => stop());
  }, []);
  useShortcuts([
    {
      keys: "d",
      does: "what differs between the shown runs, and back",
      run: () => open(view.tab.peek() === "diff" ? "curves" : "diff"),
    },
  ]);
  const tab = view.tab.value;
  return html`
    <div class="compare" data-folded=${folded.value} style=${{ "--side": width.value && `${width.value}px` }}>
      <h1 class="sr-only">Compare</h1>
      <section class="side" aria-label="Runs">
        <div class="filter-row">
          <${FilterLine} />
          <${ViewsButton} />
        </div>
        <div class="side-line">
          <button class="quiet fold" type="button"
            aria-expanded=${!folded.value} onClick=${() => (folded.value = !folded.value)}>
              <span class="caret" aria-hidden="true"></span>Runs</button>
          <${Count} />
          <${Top} />
          <${GroupBy} />
          <${Columns} />
        </div>
        ${view.group.value && html`<${GroupTable} />`}
        <${RunTable} />
        <${SideHandle} />
      </section>
      <section class="main-side" aria-label="Comparison">
        <div class="tools">
          <${Tabs} />
          ${(tab === "curves" || tab === "system") && html`<${MetricSearch} />`}
          ${tab === "curves" && html`<${AxisTools} />`}
          ${tab === "system" && html`<${SystemTools} />`}
          <${ShareAsFile} small=${true} what=${() => ({ view: readable(query.peek()) })} />
          <${Waiting} />
        </div>
        <div id="tab-panel" role="tabpanel" aria-labelledby=${`tab-${tab}`}>
          <${Problem} text=${view.ignored.value.join("; ")} />
          ${curves.error.value && html`<${Problem} text=${curves.error.value} />`}
          ${
            (tab === "curves" || tab === "system") &&
            html`<${Panels} key=${tab} system=${tab === "system"} />`
          }
          ${
            tab === "parameters" &&
            html`<${Later} key=${tab} load=${LATER[tab]}
              props=${{ filter: view.filter.value, highlighted, onFilter: view.setFilter }} />`
          }
          ${
            (tab === "media" || tab === "diff") &&
            html`<${Later} key=${tab} load=${LATER[tab]} props=${{ runs: runs.shownIds.value }} />`
          }
        </div>
      </section>
    </div>
  `;
}

function Waiting() {
  return html`<span class="waiting-word" role="status">
    ${live.trouble.value || (curves.asking.value ? "fetching…" : "")}</span>`;
}

function Count() {
  const total = runs.total.value;
  const count = runs.shownIds.value.length;
  const besides = runs.pinned.rows.value.size;
  const gone = runs.pinned.gone.value.size;
  const ofThem = besides ? `, ${besides} of them besides these,` : "";
  return html`<span class="count" role="status">
    ${total === null ? "…" : `${count} shown${ofThem} of ${counted(total, "run")}`}
    ${
      gone > 0 &&
      html`<span class="gone"> ${counted(gone, "run")} of this address ${gone === 1 ? "is" : "are"} not there
        </span>`
    }</span>`;
}

/** How many of the order's first runs are shown. */
function Top() {
  const change = (/** @type {Event} */ event) =>
    view.setTop(Number(/** @type {HTMLInputElement} */ (event.target).value));
  return html`<label class="tool"><span>first</span>
    <input class="top-n" type="number" min="0" max="1000"
      value=${view.top.value} onChange=${change} aria-label="How many runs are shown" />
  </label>`;
}
