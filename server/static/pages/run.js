/** One run: what `halving show` shows, and what it leads to. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Badge, Copy, DagsterLink, Empty, Facts, Loaded, Moment, Section, useTitle } from "../components/bits.js";
import { Sparkline } from "../components/lines.js";
import { ApiError, request, send, session, useWatched } from "../lib/api.js";
import { NONE, counted, duration, number, shortDigest, shown, size } from "../lib/format.js";
import { html } from "../lib/html.js";

const KEYS_AT_ONCE = 50;
const FIRST_KEYS = 200;
const FIRST_MEDIA = 12;

/** @param {{project: string, run: string}} props */
export default function Run({ project, run }) {
  useTitle(`${project}/${run}`);
  const path = `/runs/${encodeURIComponent(project)}/${encodeURIComponent(run)}`;
  const watched = useWatched(path, { every: (data) => (data?.status === "running" ? 3000 : 0) });
  return html`<div class="page"><${Loaded} watched=${watched}>${(/** @type {any} */ data) => html`<${Found} run=${data} />`}<//></div>`;
}

/** @param {{run: any}} props */
function Found({ run }) {
  const id = `${run.project}/${run.run}`;
  const sweep = run.parent.sweep ?? run.index?.sweep;
  const last = run.attempts.at(-1);
  return html`
    <p class="crumb"><a href=${`/?filter=${encodeURIComponent(`project = '${run.project}'`)}`}>${run.project}</a>${sweep && html` / <a href=${`/sweeps/${sweep}`}>${sweep}</a>`}</p>
    <div class="page-top">
      <h1>${run.run}</h1>
      <${Badge} status=${run.status} />
      <div class="actions">
        <a class="button" href=${`/?filter=${encodeURIComponent(`run = '${run.run}'`)}`}>Open in Compare</a>
        ${sweep && html`<${DagsterLink} base=${session.value?.dagster_url} asset="trial" partition=${run.run} />`}
        ${run.parent.dagster_run && session.value?.dagster_url && html`<a class="button" target="_blank" rel="noopener" href=${`${session.value.dagster_url.replace(/\/$/, "")}/runs/${run.parent.dagster_run}`}>Its job ↗</a>`}
      </div>
    </div>
    ${run.status === "unfinished" && html`<p class="notice">No end is recorded and no process trains it. On the machine that did, this saves the points that are still there: <${Copy} text="halving recover" /></p>`}
    ${last?.dropped_points > 0 && html`<p class="notice">${counted(last.dropped_points, "point")} of the last attempt were dropped, because its store was away for longer than the journal holds.</p>`}
    <dl class="figures">
      <div><dt>Started</dt><dd><${Moment} at=${run.started} /><small><${Moment} at=${run.started} relative=${true} /></small></dd></div>
      <div><dt>Training time</dt><dd>${duration(run.seconds)}<small>${counted(run.attempts.length, "attempt")}</small></dd></div>
      <div><dt>Epoch</dt><dd>${run.epoch ?? NONE}<small>${counted(run.checkpoints.length, "checkpoint")}</small></dd></div>
      <div><dt>Model</dt><dd>${run.index?.model ? html`<a href=${`/models/${encodeURIComponent(run.index.model)}?version=${run.index.version}`}>${run.index.version}</a><small>${run.index.model}, ${run.index.stage}</small>` : html`${NONE}<small>not promoted</small>`}</dd></div>
    </dl>
    <${Metrics} run=${run} id=${id} />
    <div class="columns">
      <div class="stack">
        <${Params} params=${run.params} />
        <${Section} title="Belongs to">
          <${Facts} pairs=${[
            ["tags", Object.keys(run.tags).length > 0 && html`<span class="tags">${Object.entries(run.tags).map(([name, value]) => html`<span key=${name} class="tag">${name} <b>${shown(value)}</b></span>`)}</span>`],
            ["sweep", sweep && html`<a href=${`/sweeps/${sweep}`}>${sweep}</a>, trial ${run.parent.trial}`],
            ["dataset", run.parent.dataset && html`<a href=${`/datasets/${encodeURIComponent(run.parent.dataset)}?snapshot=${run.parent.snapshot ?? ""}`}>${run.parent.dataset} <code>${shortDigest(run.parent.snapshot)}</code></a>`],
            ["trainable", run.parent.trainable],
            ["seed", run.seed === null ? "not set" : String(run.seed)],
            ...Object.entries(run.determinism).map(([name, value]) => /** @type {[string, any]} */ ([name, value === null ? null : shown(value)])),
          ]} />
        <//>
      </div>
      <div class="stack"><${Code} run=${run} id=${id} /><${Environment} provenance=${run.provenance} /></div>
    </div>
    <${Attempts} attempts=${run.attempts} />
    <${Media} run=${run} id=${id} />
    <${Artifacts} run=${run} id=${id} />
    <${Checkpoints} run=${run} id=${id} />
    <${Files} run=${run} />
  `;
}

/** @param {{run: any, id: string}} props */
function Metrics({ run, id }) {
  const keys = Object.keys(run.metrics);
  const own = keys.filter((key) => !key.startsWith("system/"));
  const system = keys.filter((key) => key.startsWith("system/"));
  const curves = useSignal(/** @type {Map<string, any>} */ (new Map()));
  const points = keys.reduce((sum, key) => sum + (run.metrics[key].points ?? 0), 0);
  useEffect(() => {
    void readCurves(id, keys.slice(0, FIRST_KEYS)).then((found) => (curves.value = found));
  }, [id, points]);
  if (!keys.length) {
    return html`<${Empty} title="No metrics yet">${run.status === "running" ? "They appear here within seconds of run.log." : "The run logged none."}<//>`;
  }
  return html`<${Section} title="Metrics" count=${own.length}>
    <${MetricTable} run=${run} keys=${own} curves=${curves.value} label="Metrics" />
    ${system.length > 0 && html`<details class="after"><summary>${counted(system.length, "system metric")}</summary><${MetricTable} run=${run} keys=${system} curves=${curves.value} label="System metrics" /></details>`}
  <//>`;
}

/** @param {{run: any, keys: string[], curves: Map<string, any>, label: string}} props */
function MetricTable({ run, keys, curves, label }) {
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead><tr><th scope="col">Metric</th><th scope="col">Curve</th><th scope="col" class="right">Last</th><th scope="col" class="right">Min</th><th scope="col" class="right">Max</th><th scope="col" class="right">Points</th></tr></thead>
      <tbody>${keys.map((key) => {
        const [value, curve] = [run.metrics[key], curves.get(key)];
        return html`<tr key=${key}>
          <th scope="row">${key}</th><td>${curve && html`<${Sparkline} x=${curve.x} y=${curve.value} width=${180} />`}</td>
          <td class="right strong">${number(value.last)}</td><td class="right">${number(value.min)}</td><td class="right">${number(value.max)}</td><td class="right muted">${value.points ?? NONE}</td>
        </tr>`;
      })}</tbody>
    </table>
  </div>`;
}

/**
 * A run's curves, small: what a sparkline can show. One that cannot be had is left out; its numbers are in the table.
 * @param {string} id
 * @param {string[]} keys
 */
async function readCurves(id, keys) {
  const found = new Map();
  try {
    for (let from = 0; from < keys.length; from += KEYS_AT_ONCE) {
      const asked = { runs: [id], keys: keys.slice(from, from + KEYS_AT_ONCE), x: "step", max_points: 120 };
      for (const curve of (await send("/curves", asked)).curves) found.set(curve.key, curve);
    }
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
  return found;
}

/** @param {{params: Record<string, unknown>}} props */
function Params({ params }) {
  const flat = flatten(params);
  return html`<${Section} title="Params" count=${flat.length}>
    ${flat.length ? html`<${Facts} pairs=${flat.map(([name, value]) => [name, html`<code>${shown(value)}</code>`])} />` : html`<p class="muted">None were given: halving.init(project, {"lr": 0.1}) records them.</p>`}
  <//>`;
}

/**
 * Nested params by their path, as a filter names them.
 * @param {Record<string, unknown>} params
 * @param {string} [prefix]
 * @returns {[string, unknown][]}
 */
function flatten(params, prefix = "") {
  return Object.entries(params).flatMap(([name, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) && Object.keys(value).length
      ? flatten(/** @type {Record<string, unknown>} */ (value), `${prefix}${name}/`)
      : [/** @type {[string, unknown]} */ ([prefix + name, value])],
  );
}

/** @param {{run: any, id: string}} props */
function Code({ run, id }) {
  const git = run.provenance.git;
  const lockfile = run.provenance.lockfile;
  const tree = git?.dirty === null ? `unknown: git could not say (${git.error})` : git?.dirty ? "changed files" : "clean";
  const leftOut = (git?.left_out ?? []).map((/** @type {any} */ file) => `${file.path} (${size(file.bytes)})`).join(", ");
  return html`<${Section} title="Code">
    <${Facts} pairs=${[
      ["commit", git?.commit ? html`<${Copy} text=${git.commit} shown=${git.commit.slice(0, 12)} label="the commit" />` : "not in a git checkout"],
      ["branch", git?.branch],
      ["remote", git?.remote],
      ["working tree", git && tree],
      ["left out", leftOut],
      ["lockfile", lockfile && html`${lockfile.name} <code>${shortDigest(lockfile.sha256)}</code>`],
      ["command", run.provenance.command?.length ? html`<code>${run.provenance.command.join(" ")}</code>` : null],
    ]} />
    ${git?.patch && html`<${Patch} id=${id} digest=${git.patch} />`}
  <//>`;
}

/** What was changed over the commit; fetched when it is opened. @param {{id: string, digest: string}} props */
function Patch({ id, digest }) {
  const text = useSignal("");
  const open = async () => {
    if (text.value) return;
    try {
      text.value = await (await request(`/blobs/${digest}?run=${encodeURIComponent(id)}`)).text();
    } catch (error) {
      text.value = /** @type {Error} */ (error).message;
    }
  };
  return html`<details class="after" onToggle=${open}><summary>The changes over the commit</summary><pre class="patch" tabindex="0">${text.value.split("\n").map((line) => html`<span class=${lineKind(line)}>${line}${"\n"}</span>`)}</pre></details>`;
}

/** @param {string} line */
function lineKind(line) {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ")) return "file";
  return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : line.startsWith("@@") ? "hunk" : "";
}

/** @param {{provenance: any}} props */
function Environment({ provenance }) {
  const hardware = provenance.hardware ?? {};
  const packages = Object.entries(provenance.packages ?? {});
  return html`<${Section} title="Environment">
    <${Facts} pairs=${[
      ["python", provenance.python && `${provenance.python.implementation} ${provenance.python.version}`],
      ["image", provenance.image],
      ["host", hardware.host],
      ["platform", hardware.platform],
      ["CPUs", hardware.cpus],
      ["memory", hardware.memory_bytes && size(hardware.memory_bytes)],
      ["GPUs", hardware.gpus?.join("; ") || "none"],
    ]} />
    ${packages.length > 0 && html`<details class="after"><summary>${counted(packages.length, "package")}</summary><pre tabindex="0">${packages.map(([name, version]) => `${name} ${version}`).join("\n")}</pre></details>`}
  <//>`;
}

/** @param {{attempts: any[]}} props */
function Attempts({ attempts }) {
  return html`<${Section} title="Attempts" count=${attempts.length}>
    <div class="scroll" tabindex="0" role="region" aria-label="Attempts">
      <table>
        <thead><tr><th scope="col" class="right">#</th><th scope="col">Ended as</th><th scope="col">Started</th><th scope="col" class="right">Duration</th><th scope="col" class="right">Epoch</th><th scope="col" class="right">Points</th><th scope="col">Lost</th></tr></thead>
        <tbody>${attempts.map((each) => {
          const lost = [each.dropped_points && `${counted(each.dropped_points, "point")} dropped`, each.rejected_values && `${counted(each.rejected_values, "value")} rejected`].filter(Boolean);
          return html`<tr key=${each.number}><th scope="row" class="right">${each.number}</th><td><${Badge} status=${each.status} /></td><td><${Moment} at=${each.started} /></td><td class="right">${duration(each.seconds)}</td><td class="right">${each.epoch ?? NONE}</td><td class="right">${each.points ?? NONE}</td><td class=${lost.length ? "" : "muted"}>${lost.join(", ") || "nothing"}</td></tr>`;
        })}</tbody>
      </table>
    </div>
  <//>`;
}

/**
 * @param {string} id
 * @param {string} digest
 */
const blob = (id, digest) => `/api/v1/blobs/${digest}?run=${encodeURIComponent(id)}`;

/** @param {{run: any, id: string}} props */
function Media({ run, id }) {
  const all = useSignal(false);
  if (!run.media.length) return null;
  const newest = [...run.media].reverse();
  const listed = all.value ? newest : newest.slice(0, FIRST_MEDIA);
  return html`<${Section} title="Media" count=${run.media.length} aside=${html`<span class="muted">the newest first</span>`}>
    <ul class="media">
      ${listed.map(
        (each) => html`<li key=${`${each.key}-${each.step}-${each.digest}`}>
          <a href=${blob(id, each.digest)} target="_blank">
            ${
              each.kind === "image"
                ? html`<img src=${blob(id, each.digest)} alt=${each.caption ?? `${each.key} at step ${each.step}`} loading="lazy" width=${each.width} height=${each.height} />`
                : html`<span class="kind">${each.kind}</span>`
            }
            <span>${each.key} <span class="muted">step ${each.step}, ${size(each.bytes)}</span></span>
          </a>
        </li>`,
      )}
    </ul>
    ${newest.length > listed.length && html`<p class="after"><button type="button" onClick=${() => (all.value = true)}>Show all ${newest.length}</button></p>`}
  <//>`;
}

/** @param {{run: any, id: string}} props */
function Artifacts({ run, id }) {
  if (!run.artifacts.length) return null;
  return html`<${Section} title="Artifacts" count=${run.artifacts.length}>
    <div class="scroll" tabindex="0" role="region" aria-label="Artifacts">
      <table>
        <thead><tr><th scope="col">Name</th><th scope="col" class="right">Size</th><th scope="col">Digest</th></tr></thead>
        <tbody>${run.artifacts.map((/** @type {any} */ each) => html`<tr key=${each.name}><th scope="row"><a href=${blob(id, each.digest)} download=${each.name}>${each.name}</a></th><td class="right">${size(each.bytes)}</td><td class="mono muted" title=${each.digest}>${shortDigest(each.digest)}</td></tr>`)}</tbody>
      </table>
    </div>
  <//>`;
}

/** @param {{run: any, id: string}} props */
function Checkpoints({ run, id }) {
  if (!run.checkpoints.length) return null;
  const metrics = [...new Set(run.checkpoints.flatMap((/** @type {any} */ each) => Object.keys(each.reported ?? {})))];
  return html`<${Section} title="Checkpoints" count=${run.checkpoints.length}>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Checkpoints, the newest first">
      <table>
        <thead><tr><th scope="col" class="right">Epoch</th><th scope="col" class="right">Attempt</th>${metrics.map((name) => html`<th key=${name} scope="col" class="right">${name}</th>`)}<th scope="col">Saved</th><th scope="col">Digest</th></tr></thead>
        <tbody>${[...run.checkpoints].reverse().map((each) => html`<tr key=${`${each.attempt}-${each.epoch}-${each.digest}`}><th scope="row" class="right">${each.epoch}</th><td class="right">${each.attempt}</td>${metrics.map((name) => html`<td key=${name} class="right">${number(each.reported?.[name])}</td>`)}<td><${Moment} at=${each.time} /></td><td class="mono"><a href=${blob(id, each.digest)} download title=${each.digest}>${shortDigest(each.digest)}</a></td></tr>`)}</tbody>
      </table>
    </div>
  <//>`;
}

/** @param {{run: any}} props */
function Files({ run }) {
  const files = run.files;
  return html`<${Section} title="Files" aside=${html`<${Copy} text=${`halving show ${run.project}/${run.run}`} />`}>
    <${Facts} pairs=${[
      ["store", html`<code>${files.store}</code>`],
      ["record", html`<code>${files.record}</code>`],
      ["points", files.full && html`<code>${files.full}</code>`],
      ["rollups", files.rollup && html`<code>${files.rollup}</code>`],
      ["segments", files.segments.length ? html`${files.segments.length} not compacted yet <${Copy} text="halving compact" />` : null],
      ["journals", files.journals.join(", ")],
    ]} />
  <//>`;
}
