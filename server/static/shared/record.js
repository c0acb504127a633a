/** What the record of a single run says. */
import { Facts, Section } from "../components/bits.js";
import { Attempts, Code, Environment, Params } from "../pages/run-record.js";
import { html } from "../lib/html.js";
import { Media } from "./media.js";
import { duration, number, shortDigest, size, timeTitle } from "../lib/format.js";

/** @param {{record: any}} props */
export function Record({ record }) {
  const tags = Object.entries(record.tags ?? {});
  return html`
    <div class="columns">
      <${Section} title="Run"><${Facts} pairs=${[
        ["project", record.project],
        ["status", record.status],
        ["started", timeTitle(record.started)],
        ["ended", timeTitle(record.ended)],
        ["duration", duration(record.seconds)],
        ["epoch", record.epoch],
        ["checkpoints", record.checkpoints.length || null],
        ["seed", record.seed],
        ["sweep", record.parent.sweep],
        ["trial", record.parent.trial],
        ["dataset", record.parent.dataset],
        ["snapshot", record.parent.snapshot && html`<code>${shortDigest(record.parent.snapshot)}</code>`],
        [
          "tags",
          tags.length > 0 &&
            html`<span class="tags">${tags.map(
              ([name, value]) => html`<span class="tag" key=${name}>${name} <b>${String(value)}</b></span>`,
            )}</span>`,
        ],
      ]} /><//>
      <${Params} params=${record.params} />
      <${Code} run=${record} id=${`${record.project}/${record.run}`} />
      <${Environment} provenance=${record.provenance} />
    </div>
    <${Metrics} metrics=${record.metrics} />
    <${Attempts} attempts=${record.attempts} />
    <${Media} media=${record.media} />
    ${
      record.artifacts.length > 0 &&
      html`<${Section} title="Artifacts" count=${record.artifacts.length}>
        <${Facts} pairs=${record.artifacts.map((/** @type {any} */ artifact) => [
          artifact.name,
          html`${size(artifact.bytes)} <code>${shortDigest(artifact.digest)}</code>`,
        ])} /><//>`
    }
  `;
}

/** Every metric of the run, also those without a chart. @param {{metrics: Record<string, any>}} props */
function Metrics({ metrics }) {
  const names = Object.keys(metrics).sort();
  if (!names.length) return null;
  return html`<${Section} title="Metrics" count=${names.length}>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Metrics"><table>
      <thead><tr><th scope="col">Metric</th><th scope="col" class="right">Last</th>
        <th scope="col" class="right">Min</th><th scope="col" class="right">Max</th>
        <th scope="col" class="right">Points</th></tr></thead>
      <tbody>${names.map((name) => {
        const { last, min, max, points } = metrics[name];
        return html`<tr key=${name}><th scope="row">${name}</th>
          ${[last, min, max, points].map((value) => html`<td class="right">${number(value)}</td>`)}</tr>`;
      })}</tbody></table></div>
  <//>`;
}
