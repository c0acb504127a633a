/** Groups of runs, each with its count and mean ± standard deviation of the columns; a click filters by the group. */
import { counted, number, shown } from "../lib/format.js";
import { useWatched } from "../lib/api.js";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/url-state.js";
import * as view from "./view.js";

/** @typedef {{key: Record<string, any>, count: number, values: Record<string, {mean: number, std: number | null, count: number}>}} Group */

export function GroupTable() {
  const by = view.group.value;
  const query = new URLSearchParams({ by, limit: "200" });
  if (view.filter.value) query.set("filter", view.filter.value);
  if (view.columns.value.length) query.set("columns", view.columns.value.join(","));
  const watched = useWatched(`/runs/groups?${query}`);
  const groups = /** @type {Group[]} */ (watched.data.value?.groups ?? []);
  const columns = view.columns.value.filter((column) => groups.some((group) => group.values[column]));
  return html`
    <div class="groups" role="region" aria-label=${`Groups by ${by}`} tabindex="0">
      <table>
        <thead><tr><th scope="col">${by}</th><th scope="col">Runs</th>${columns.map((column) => html`<th key=${column} scope="col" title=${column}>${column.replace(/^(params|metrics|tags)\./, "")}</th>`)}</tr></thead>
        <tbody>
          ${groups.map((group) => {
            const value = group.key[by];
            return html`<tr key=${String(value)} data-group=${String(value)}>
              <th scope="row"><button class="quiet" type="button" title="Only these runs" onClick=${() => only(by, value)}>${value === null ? "none" : shown(value)}</button></th>
              <td>${group.count}</td>
              ${columns.map((column) => html`<td key=${column} title=${counted(group.values[column]?.count ?? 0, "run")}>${statistics(group.values[column])}</td>`)}
            </tr>`;
          })}
        </tbody>
      </table>
      ${watched.data.value && !groups.length && html`<p class="nothing">No run has this.</p>`}
      ${watched.error.value && html`<p class="filter-error">${watched.error.value.message}</p>`}
      ${!view.columns.value.length && html`<p class="muted hint">Choose columns to see their mean ± standard deviation.</p>`}
    </div>
  `;
}

/** @param {{mean: number, std: number | null} | undefined} of */
const statistics = (of) => (of ? `${number(of.mean, 4)}${of.std === null ? "" : ` ± ${number(of.std, 2)}`}` : "–");

/** @param {string} by @param {unknown} value */
function only(by, value) {
  const literal = typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
  const mine = value === null ? `${by} is null` : `${by} = ${literal}`;
  setQuery({ filter: view.narrowed(view.filter.peek(), [mine]), group: null, show: null, hide: null }, { push: true });
}
