/** All datasets with their snapshots. */
import { Empty, Loaded, Timestamp, useTitle } from "../components/bits.js";
import { useWatched } from "../lib/api.js";
import { NONE, shortDigest, size } from "../lib/format.js";
import { html } from "../lib/html.js";

export default function Datasets() {
  useTitle("Datasets");
  const watched = useWatched("/datasets", { every: 10000 });
  return html`<div class="page"><h1>Datasets</h1><${Loaded} watched=${watched}>${list}<//></div>`;
}

/** @param {{datasets: any[]}} data */
function list({ datasets }) {
  if (!datasets.length) {
    return html`<${Empty} title="No snapshot was taken yet" command="halving sweep sweeps/digits.yaml">A sweep
      takes one of its dataset before it starts. This one takes a minute:<//>`;
  }
  return html`<div class="scroll card flush" tabindex="0" role="region" aria-label="Datasets">
    <table>
      <thead>
        <tr><th scope="col">Dataset</th><th scope="col">Newest snapshot</th><th scope="col" class="right">Rows
          </th><th scope="col" class="right">Size</th><th scope="col">Target</th>
          <th scope="col" class="right">Snapshots</th><th scope="col" class="right">Taken</th>
          <th scope="col">Its last sweep</th></tr></thead>
      <tbody>${datasets.map(({ name, snapshots }) => {
        const newest = snapshots.at(-1);
        const sweep = newest.sweeps.at(-1);
        return html`<tr key=${name}>
          <th scope="row"><a href=${`/datasets/${encodeURIComponent(name)}`}>${name}</a></th>
          <td class="mono">
            <a href=${`/datasets/${encodeURIComponent(name)}?snapshot=${newest.digest}`}>
              ${shortDigest(newest.digest)}</a></td>
          <td class="right">${newest.rows}</td><td class="right">${size(newest.bytes)}</td>
          <td>${newest.target}</td>
          <td class="right">${snapshots.length}</td>
          <td class="right"><${Timestamp} time=${newest.created_at} /></td>
          <td>${sweep ? html`<a href=${`/sweeps/${sweep}`}>${sweep}</a>` : NONE}</td>
        </tr>`;
      })}</tbody>
    </table>
  </div>`;
}
