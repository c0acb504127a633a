/**
 * Groups of runs, each with its line on the charts, its count and mean ± standard deviation of the columns; a
 * click filters by the group.
 */
import { counted, number, display } from "../lib/format.js";
import { trouble, useWatched } from "../lib/api.js";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/url-state.js";
import { groupId, lines } from "./groups.js";
import { Swatch } from "./run-line.js";
import * as view from "./view.js";

/**
 * @typedef {{key: Record<string, any>, count: number, values: Record<string, {mean: number, std: number |
 *   null, count: number}>}} Group
 */

const MAX_GROUPS = 200;
const MAX_MEANS = 30; // columns, by the server

export function GroupTable() {
  const by = view.group.value;
  const query = new URLSearchParams({ by, limit: String(MAX_GROUPS) });
  if (view.filter.value) query.set("filter", view.filter.value);
  const meanColumns = view.columns.value.slice(0, MAX_MEANS);
  if (meanColumns.length) query.set("columns", meanColumns.join(","));
  const watched = useWatched(`/runs/groups?${query}`);
  const groups = /** @type {Group[]} */ (watched.data.value?.groups ?? []);
  const columns = meanColumns.filter((column) => groups.some((group) => group.values[column]));
  return html`
    <div class="groups" role="region" aria-label=${`Groups by ${by}`} tabindex="0">
      <table>
        <thead>
          <tr><th scope="col">${by}</th><th scope="col">Runs</th>
            ${columns.map(
              (column) =>
                html`<th key=${column} scope="col" title=${column}>
                  ${column.replace(/^(params|metrics|tags)\./, "")}</th>`,
            )}</tr></thead>
        <tbody>
          ${groups.map((group) => {
            const value = group.key[by];
            return html`<tr key=${String(value)} data-group=${String(value)}>
              <th scope="row">
                ${lines.value.includes(groupId(value)) && html`<${Swatch} id=${groupId(value)} /> `}
                <button class="quiet" type="button" title="Only these runs" onClick=${() => only(by, value)}>
                  ${value === null ? "none" : display(value)}</button></th>
              <td>${group.count}</td>
              ${columns.map(
                (column) =>
                  html`<td key=${column} title=${counted(group.values[column]?.count ?? 0, "run")}>
                    ${statistics(group.values[column])}</td>`,
              )}
            </tr>`;
          })}
        </tbody>
      </table>
      ${watched.data.value && !groups.length && html`<p class="nothing">No run has this.</p>`}
      ${watched.error.value && html`<p class="filter-error">${trouble(watched)}</p>`}
      ${
        groups.length === MAX_GROUPS &&
        html`<p class="muted hint">These are the ${MAX_GROUPS} largest groups; there may be more.</p>`
      }
      ${
        view.columns.value.length > MAX_MEANS &&
        html`<p class="muted hint">Means are given of the first ${MAX_MEANS} columns.</p>`
      }
      <p class="muted hint">A line of the charts is the mean of a group's shown runs, its band ± one standard
        deviation.</p>
      ${
        !view.columns.value.length &&
        html`<p class="muted hint">Choose columns to see their mean ± standard deviation.</p>`
      }
    </div>
  `;
}

/** @param {{mean: number, std: number | null} | undefined} numbers */
function statistics(numbers) {
  if (!numbers) return "–";
  const mean = number(numbers.mean, 4);
  return numbers.std === null ? mean : `${mean} ± ${number(numbers.std, 2)}`;
}

/** @param {string} by @param {unknown} value */
function only(by, value) {
  const literal = typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
  const mine = value === null ? `${by} is null` : `${by} = ${literal}`;
  setQuery(
    { filter: view.narrowed(view.filter.peek(), [mine]), group: null, show: null, hide: null },
    { push: true },
  );
}
