/** All models, each with the version that is in use. */
import { Badge, Empty, Loaded, Timestamp, useTitle } from "../components/bits.js";
import { useWatched } from "../lib/api.js";
import { NONE, counted, number } from "../lib/format.js";
import { html } from "../lib/html.js";

export default function Models() {
  useTitle("Models");
  const watched = useWatched("/models", { every: 10000 });
  return html`<div class="page"><h1>Models</h1><${Loaded} watched=${watched}>${list}<//></div>`;
}

/** @param {{models: any[]}} data */
function list({ models }) {
  if (!models.length) {
    return html`<${Empty} title="No model was promoted yet" command="halving sweep sweeps/digits.yaml">
      The winner of a sweep becomes a version when it passes its gates. This sweep takes a minute:
    <//>`;
  }
  return html`<div class="scroll card flush" tabindex="0" role="region" aria-label="Models">
    <table>
      <thead>
        <tr><th scope="col">Model</th><th scope="col">Champion</th><th scope="col">On the test split</th>
          <th scope="col">From</th><th scope="col" class="right">Versions</th><th scope="col">Waiting</th>
          <th scope="col" class="right">Newest</th></tr></thead>
      <tbody>${models.map(({ model, versions }) => {
        const champion = versions.find((/** @type {any} */ version) => version.stage === "champion");
        const staging = versions.filter((/** @type {any} */ version) => version.stage === "staging");
        return html`<tr key=${model}>
          <th scope="row"><a href=${`/models/${encodeURIComponent(model)}`}>${model}</a></th>
          <td>${
            champion
              ? html`<span class="strong">${champion.version}</span>`
              : html`<span class="muted">none</span>`
          }</td>
          <td>${(champion && scores(champion.metrics)) || NONE}</td>
          <td>${champion ? from(champion) : NONE}</td>
          <td class="right">${versions.length}</td>
          <td>${
            staging.length
              ? html`<${Badge} status="staging"
              title=${counted(staging.length, "version")} /> ${staging
                .map((/** @type {any} */ version) => version.version)
                .join(", ")}`
              : html`<span class="muted">nothing</span>`
          }</td>
          <td class="right">
            ${versions.length ? html`<${Timestamp} time=${versions.at(-1).created_at} />` : NONE}</td>
        </tr>`;
      })}</tbody>
    </table>
  </div>`;
}

/** @param {any} version */
const from = (version) =>
  version.sweep
    ? html`<a href=${`/sweeps/${version.sweep}`}>${version.sweep}
  </a>`
    : html`<span class="muted">a client</span>`;

/** @param {Record<string, number | null>} metrics */
export const scores = (metrics) =>
  Object.entries(metrics)
    .map(([name, value]) => `${name} ${number(value, 4)}`)
    .join(", ");
