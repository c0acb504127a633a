/** What is above a shared page's charts: the search, the axes, the smoothing. */
import { html } from "../lib/html.js";
import * as state from "./state.js";

/** @param {Event} event */
const valueOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;

/** @param {{facts: import("./payload.js").Facts}} props */
export function Tools({ facts }) {
  const axis = state.axis.value;
  return html`<div class="tools shared-tools">
    ${
      facts.metrics.length > 3 &&
      html`<input class="metric-search" type="search" aria-label="Find metrics" placeholder="Find metrics"
        value=${state.search.value}
        onInput=${(/** @type {Event} */ event) => (state.search.value = valueOf(event))} />`
    }
    <label class="tool"><span>x</span>
      <select value=${axis} aria-label="Horizontal axis"
        onChange=${(/** @type {Event} */ event) =>
          (state.axis.value = /** @type {import("./payload.js").Axis} */ (valueOf(event)))}>
        <option value="step">step</option><option value="relative">relative time</option>
        <option value="time">time</option>
      </select>
    </label>
    ${axis !== "time" && html`<${Toggle} on=${state.logX} text="log x" />`}
    <${Toggle} on=${state.logY} text="log y" />
    <label class="tool"><span>smooth</span>
      <input type="range" min="0" max="0.99" step="0.01" value=${state.smoothing.value} aria-label="Smoothing"
        onInput=${(/** @type {Event} */ event) => (state.smoothing.value = Number(valueOf(event)))} />
      <output>${state.smoothing.value ? state.smoothing.value.toFixed(2) : "off"}</output>
    </label>
    <${Toggle} on=${state.band} text="band" title="The smallest and largest value of each bucket" />
    ${state.isZoomed.value && html`<button type="button" onClick=${state.showAll}>Whole range</button>`}
  </div>`;
}

/** @param {{on: import("@preact/signals").Signal<boolean>, text: string, title?: string}} props */
function Toggle({ on, text, title }) {
  return html`<button class="toggle" type="button" title=${title}
    aria-pressed=${on.value} onClick=${() => (on.value = !on.peek())}>${text}</button>`;
}
