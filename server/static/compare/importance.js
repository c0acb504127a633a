/** How much each param says of a metric. */
import { etaSquared, rankCorrelation } from "../charts/statistics.js";
import { html } from "../lib/html.js";

/** @typedef {import("./parameters.js").Run} Run */
/**
 * @typedef {{name: string, share: number, sign: string, count: number}} Importance share: of the variance of
 *   the metric's ranks what the param explains, from 0 to 1, NaN where that cannot be told; sign: "" where
 *   the param has no order
 */

/**
 * How much each param says of the metric, the most telling first: of numbers ρ², of texts η² of the metric's
 * ranks.
 * @param {Run[]} runs
 * @param {import("../charts/axis.js").Axis[]} axes of the params
 * @param {string} objective
 * @returns {Importance[]}
 */
export function importances(runs, axes, objective) {
  return axes
    .map(({ name, kind }) => {
      const pairs = runs.map((run) => /** @type {const} */ ([run.values[name], run.values[objective]]));
      if (kind === "text") return { name, sign: "", ...etaSquared(pairs) };
      const { rho, count } = rankCorrelation(pairs);
      return { name, share: rho * rho, sign: rho < 0 ? "−" : "+", count };
    })
    .sort((left, right) => (right.share || 0) - (left.share || 0));
}

/** @param {{importances: Importance[], objective: string}} props */
export function Importances({ importances, objective }) {
  return html`
    <section class="card" aria-label="Importance">
      <h2>Importance for ${objective || "…"}</h2>
      <p class="muted">How much of the variance of the metric's ranks each param explains by itself: ρ² of
        numbers, + where the metric grows with them and − where it
        falls, and η² of texts, which is large by chance where each text has few runs.</p>
      ${
        importances.length
          ? html`<table class="bars">
              <thead class="sr-only">
                <tr><th scope="col">Param</th><th scope="col">Share, as a bar</th><th scope="col">Share</th>
                  <th scope="col">Runs</th></tr></thead>
              <tbody>${importances.map(
                ({ name, share, sign, count }) => html`<tr key=${name}>
                  <th scope="row" title=${name}>${name.replace("params.", "")}</th>
                  <td><meter min="0" max="1" value=${share || 0} aria-label=${`Importance of ${name}`}>
                    </meter></td>
                  <td class="value">${Number.isNaN(share) ? "–" : `${sign}${share.toFixed(2)}`}</td>
                  <td class="muted value">n ${count}</td>
                </tr>`,
              )}</tbody>
            </table>`
          : html`<p class="nothing">No param differs between these runs.</p>`
      }
    </section>
  `;
}
