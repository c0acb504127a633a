/** One dataset: its snapshots, and the facts of the one that is chosen. */
import { Copy, DagsterLink, Facts, Loaded, Timestamp, Section, useTitle } from "../components/bits.js";
import { session, useWatched } from "../lib/api.js";
import { NONE, counted, shortDigest, display, size } from "../lib/format.js";
import { html } from "../lib/html.js";
import { query } from "../lib/url-state.js";

/** @param {{name: string}} props */
export default function Dataset({ name }) {
  useTitle(name);
  const watched = useWatched(`/datasets/${encodeURIComponent(name)}`, { every: 10000 });
  return html`<div class="page">
    <p class="crumb"><a href="/datasets">Datasets</a></p>
    <${Loaded} watched=${watched}>${(/** @type {any} */ data) => html`<${DatasetView} dataset=${data} />`}<//>
  </div>`;
}

/** @param {{dataset: {name: string, snapshots: any[]}}} props */
function DatasetView({ dataset }) {
  const snapshots = [...dataset.snapshots].reverse();
  const digest = query.value.get("snapshot");
  const chosen = snapshots.find((snapshot) => snapshot.digest === digest) ?? snapshots[0];
  return html`
    <div class="page-top"><h1>${dataset.name}</h1>
      <div class="actions">
        <${DagsterLink} base=${session.value?.dagster_url} asset="dataset_snapshot" partition=${chosen.key} />
        </div></div>
    <${Section} title=${html`Snapshot <code>${shortDigest(chosen.digest)}</code>`}>
      <${Splits} splits=${chosen.splits} />
      <${Facts} pairs=${[
        [
          "digest",
          html`<${Copy} text=${chosen.digest} shortText=${shortDigest(chosen.digest)} label="the digest" />`,
        ],
        ["rows", chosen.rows],
        ["size", size(chosen.bytes)],
        ["target", html`<code>${chosen.target}</code>`],
        ["source", html`<code>${chosen.source}</code>`],
        ["deprecated", chosen.deprecated && html`<b>${chosen.deprecated}</b>`],
        ["schema", html`<code title=${chosen.schema_sha256}>${shortDigest(chosen.schema_sha256)}</code>`],
        ["taken", html`<${Timestamp} time=${chosen.created_at} />`],
        [
          "sweeps",
          chosen.sweeps.length
            ? chosen.sweeps.map(
                (/** @type {string} */ sweep) =>
                  html`<a key=${sweep} href=${`/sweeps/${sweep}`}>${sweep}</a> `,
              )
            : "none was launched on it",
        ],
        [
          "runs",
          html`<a href=${`/?filter=${encodeURIComponent(`snapshot = '${chosen.digest}'`)}`}>all that
          were trained on it</a>`,
        ],
      ]} />
    <//>
    <${Content} key=${chosen.digest} name=${dataset.name} digest=${chosen.digest} />
    <${Section} title="Snapshots" count=${snapshots.length}>
      <div class="scroll" tabindex="0" role="region" aria-label="Snapshots, the newest first">
        <table>
          <thead>
            <tr><th scope="col">Digest</th><th scope="col" class="right">Rows</th>
              <th scope="col" class="right">Size</th><th scope="col">Schema</th><th scope="col">Taken</th>
              <th scope="col">Its last sweep</th></tr></thead>
          <tbody>${snapshots.map(
            (snapshot, index) => html`<tr key=${snapshot.digest} class=${snapshot === chosen ? "chosen" : ""}>
              <th scope="row" class="mono">
                <a href=${`?snapshot=${snapshot.digest}`}
                  aria-current=${snapshot === chosen ? "true" : undefined}>
                  ${shortDigest(snapshot.digest)}</a>
                  ${snapshot.deprecated && html` <span class="muted">deprecated</span>`}</th>
              <td class="right">${snapshot.rows}</td><td class="right">${size(snapshot.bytes)}</td>
              <td>${schema(snapshot, snapshots[index + 1])}</td>
              <td><${Timestamp} time=${snapshot.created_at} /></td>
              <td>${
                snapshot.sweeps.length
                  ? html`<a href=${`/sweeps/${snapshot.sweeps.at(-1)}`}>${snapshot.sweeps.at(-1)}</a>`
                  : NONE
              }</td>
            </tr>`,
          )}</tbody>
        </table>
      </div>
    <//>
  `;
}

/** @param {{name: string, digest: string}} props */
function Content({ name, digest }) {
  const watched = useWatched(`/datasets/${encodeURIComponent(name)}/${digest.replace("sha256:", "")}`);
  return html`<${Loaded} watched=${watched}>${columns}<//>`;
}

/** @param {any} content */
function columns({ columns, classes, shards, views, lineage, changed }) {
  const rows = Object.entries(changed?.splits ?? {}).map(
    ([split, [before, now]]) => `${split} ${before} → ${now}`,
  );
  return html`<${Section} title="Columns" count=${columns.length}>
    <${Facts} pairs=${[
      [
        "classes",
        classes &&
          Object.entries(classes)
            .map(([value, count]) => `${value}: ${count}`)
            .join(", "),
      ],
      [
        "since the one before",
        changed && html`<span>${rows.join(", ")}; ${size(changed.bytes.new)} new</span>`,
      ],
      ["stored in", counted(shards, "shard")],
      [
        "taken with",
        Object.entries(lineage.packages)
          .map(([name, version]) => `${name} ${version}`)
          .join(", "),
      ],
      ["by", lineage.made_by.dagster_run && html`Dagster's run <code>${lineage.made_by.dagster_run}</code>`],
    ]} />
    <div class="scroll" tabindex="0" role="region" aria-label="Columns">
      <table>
        <thead>
          <tr><th scope="col">Column</th><th scope="col">Type</th><th scope="col" class="right">Nulls</th>
            <th scope="col" class="right">Smallest</th><th scope="col" class="right">Largest</th></tr></thead>
        <tbody>${columns.map(
          (/** @type {any} */ column) => html`<tr key=${column.name}>
            <th scope="row">${column.name}</th><td><code>${column.type}</code></td>
            <td class="right">${column.nulls}
            </td><td class="right">${bound(column.min)}</td><td class="right">${bound(column.max)}</td>
          </tr>`,
        )}</tbody>
      </table>
    </div>
  <//>
  ${views.length > 0 && html`<${Features} views=${views} />`}`;
}

/**
 * What was joined to the labels.
 * @param {{views: any[]}} props
 */
function Features({ views }) {
  return html`<${Section} title="Features" count=${views.length}>
    <div class="scroll" tabindex="0" role="region" aria-label="Features">
      <table>
        <thead>
          <tr><th scope="col">View</th><th scope="col">Columns</th><th scope="col">Days looked at</th>
            <th scope="col" class="right">Their rows</th></tr></thead>
        <tbody>${views.map(
          (view) => html`<tr key=${view.view}>
            <th scope="row">${view.view}</th>
            <td>${view.columns
              .map((/** @type {any} */ column) =>
                column.name === column.feature ? column.name : `${column.feature} as ${column.name}`,
              )
              .join(", ")}</td>
            <td>${
              view.days ? html`${view.days} <span class="muted">${view.first} to ${view.last}</span>` : "none"
            }</td><td class="right">${view.rows}</td>
          </tr>`,
        )}</tbody>
      </table>
    </div>
  <//>`;
}

/** @param {unknown} value */
const bound = (value) => display(value).slice(0, 40);

/**
 * Whether its columns are those of the snapshot before.
 * @param {any} snapshot
 * @param {any} before
 */
function schema(snapshot, before) {
  if (!before) return html`<code>${shortDigest(snapshot.schema_sha256)}</code>`;
  return snapshot.schema_sha256 === before.schema_sha256
    ? html`<span class="muted">as before
    </span>`
    : html`<b>changed</b>`;
}

/** @param {{splits: Record<string, number>}} props */
function Splits({ splits }) {
  const largestFirst = Object.entries(splits).sort((left, right) => right[1] - left[1]);
  const total = largestFirst.reduce((sum, [, rows]) => sum + rows, 0) || 1;
  return html`<div class="splits">
    <div class="bar" aria-hidden="true">
      ${largestFirst.map(
        ([name, rows], index) =>
          html`<i key=${name} class="part split-${index % 3}"
            style=${{ width: `${(100 * rows) / total}%` }} />`,
      )}</div>
    <ul class="legend">
      ${largestFirst.map(
        ([name, rows], index) =>
          html`<li key=${name}><i class="part split-${index % 3}" />
            ${name} <span class="muted">${counted(rows, "row")}, ${Math.round((100 * rows) / total)} %</span>
            </li>`,
      )}</ul>
  </div>`;
}
