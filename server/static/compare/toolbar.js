/** What is above the panels: the tabs, the metric search, the axes, the smoothing. */
import { html } from "../lib/html.js";
import { setQuery } from "../lib/url-state.js";
import * as view from "./view.js";

const NAMES = { curves: "Curves", parameters: "Parameters", system: "System", media: "Media", diff: "Diff" };

/** @param {Event} event */
const valueOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;

export function Tabs() {
  /** @param {KeyboardEvent} event */
  const keys = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const index = (view.TABS.indexOf(view.tab.peek()) + step + view.TABS.length) % view.TABS.length;
    open(view.TABS[index]);
    /** @type {HTMLElement | null} */ (document.querySelector(`#tab-${view.TABS[index]}`))?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label="What is compared" onKeyDown=${keys}>
    ${view.TABS.map(
      (tab) =>
        html`<button key=${tab} id=${`tab-${tab}`} role="tab" type="button"
          aria-selected=${view.tab.value === tab} aria-controls="tab-panel"
        tabindex=${view.tab.value === tab ? 0 : -1} onClick=${() => open(tab)}>${NAMES[tab]}</button>`,
    )}
  </div>`;
}

/** @param {view.Tab} tab */
export const open = (tab) => setQuery({ tab: tab === "curves" ? null : tab }, { push: true });

export function MetricSearch() {
  return html`<input class="metric-search" type="search" aria-label="Find metrics" placeholder="Find metrics"
    value=${view.metricSearch.value}
    onInput=${(/** @type {Event} */ event) => setQuery({ metrics: valueOf(event) })} />`;
}

export function AxisTools() {
  return html`
    <label class="tool"><span>x</span>
      <select value=${view.axis.value} aria-label="Horizontal axis"
        onChange=${(/** @type {Event} */ event) => view.setAxis(/** @type {view.Axis} */ (valueOf(event)))}>
        <option value="step">step</option><option value="relative">relative time</option>
        <option value="time">time</option>
      </select>
    </label>
    <${SharedTools} axis=${view.axis.value} logX=${view.axis.value !== "time"} />
  `;
}

export function SystemTools() {
  return html`
    <label class="tool"><span>x</span>
      <select value=${view.systemAxis.value} aria-label="Horizontal axis"
        onChange=${(/** @type {Event} */ event) =>
          setQuery({ sysx: valueOf(event) === "time" ? "time" : null })}>
        <option value="relative">relative time</option><option value="time">time</option>
      </select>
    </label>
    <${SharedTools} axis=${view.systemAxis.value} />
  `;
}

/** @param {{axis: view.Axis, logX?: boolean}} props */
function SharedTools({ axis, logX = false }) {
  return html`
    ${logX && html`<${Toggle} on=${view.logX.value} name="logx" text="log x" />`}
    <${Toggle} on=${view.logY.value} name="logy" text="log y" />
    <label class="tool"><span>smooth</span>
      <input type="range" min="0" max="0.99" step="0.01" value=${view.smoothing.value} aria-label="Smoothing"
        onInput=${(/** @type {Event} */ event) =>
          setQuery({ smooth: Number(valueOf(event)) || null }, { often: true })} />
      <output>${view.smoothing.value ? view.smoothing.value.toFixed(2) : "off"}</output>
    </label>
    <button class="toggle" type="button"
      aria-pressed=${view.band.value}
        title="The range of what a bucket holds; of groups, mean ± standard deviation"
          onClick=${() => setQuery({ band: view.band.peek() ? "0" : null })}>band</button>
    ${
      view.isZoomed(axis) &&
      html`<button type="button" onClick=${() => view.showAll(axis)}>Whole range</button>`
    }
  `;
}

/** @param {{on: boolean, name: string, text: string}} props */
function Toggle({ on, name, text }) {
  return html`<button class="toggle" type="button"
    aria-pressed=${on} onClick=${() => setQuery({ [name]: on ? null : "1" })}>${text}</button>`;
}
