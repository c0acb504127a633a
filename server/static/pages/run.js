/**
 * One run: what `halving show` shows, its curves, where the platform stands with it, and what it leads to.
 */
import { useEffect, useRef } from "preact/hooks";
import { Badge, Copy, DagsterLink, Facts, Loaded, Timestamp, Section, useTitle } from "../components/bits.js";
import { Notes } from "../components/notes.js";
import { ShareAsFile } from "../components/share.js";
import { ShareLink } from "../components/share-link.js";
import { session, useWatched } from "../lib/api.js";
import { NONE, counted, duration, sentence, shortDigest, display } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Artifacts, Media } from "./run-files.js";
import { Lifecycle, LifecycleNotice } from "./run-lifecycle.js";
import { Metrics } from "./run-metrics.js";
import { Attempts, Code, Environment, Files, Params } from "./run-record.js";
import { Cancel, Checkpoints, Standing, TimeSpent, useTraining } from "./run-training.js";

/** Milliseconds between looks; what is not here is over. */
const PACE = /** @type {Record<string, number>} */ ({ running: 3000, unfinished: 10000 });
const STARTING_MS = 2000;

/** @param {{project: string, run: string}} props */
export default function Run({ project, run }) {
  useTitle(`${project}/${run}`);
  const watched = useWatched(`/runs/${encodeURIComponent(project)}/${encodeURIComponent(run)}`, {
    every: (data) => PACE[data?.status] ?? 0,
  });
  const training = useTraining(project, run);
  const trainingRun = training?.data.value;
  const unknown = watched.error.value?.status === 404 && !watched.data.value;
  // The catalog says first that a run begins, and that a paused one goes on.
  const standing = trainingRun && `${trainingRun.status} ${trainingRun.attempts.length}`;
  const before = useRef(standing);
  useEffect(() => {
    if (before.current !== undefined && before.current !== standing) void watched.look();
    before.current = standing;
  }, [standing]);
  // Its record is there when its process has started: each look that does not find it is followed by another
  // one.
  const starting = unknown && trainingRun?.attempts.length > 0;
  useEffect(() => {
    if (!starting) return undefined;
    const timer = setTimeout(() => void watched.look(), STARTING_MS);
    return () => clearTimeout(timer);
  }, [starting, watched.error.value]);
  const look = async () => void (await Promise.all([training?.look(), !unknown && watched.look()]));
  return html`<div class="page">${
    unknown && training && training.error.value?.status !== 404
      ? html`<${Loaded} watched=${training}>
        ${(/** @type {any} */ data) => html`<${Awaited} training=${data} look=${look} />`}<//>`
      : html`<${Loaded} watched=${watched}>
        ${(/** @type {any} */ data) => html`<${RunView} run=${data} training=${trainingRun} look=${look} />`}
        <//>`
  }</div>`;
}

/** A run that has not begun. @param {{training: any, look: () => Promise<void>}} props */
function Awaited({ training, look }) {
  return html`
    <${Crumb} project=${training.project} sweep=${training.on_its_own ? undefined : training.sweep} />
    <div class="page-top">
      <h1>${training.run}</h1>
      <${Badge} status=${training.status} />
      <div class="actions"><${Cancel} training=${training} look=${look} /></div>
    </div>
    <${Standing} training=${training} />
    <div class="columns">
      <${Params} params=${training.params} />
      <${Section} title="Belongs to">
        <${Facts} pairs=${[
          ["asked for", html`<${Timestamp} time=${training.created_at} />`],
          ["epochs", training.epochs],
          ["dataset", html`<${Dataset} name=${training.dataset} snapshot=${training.snapshot} />`],
          ["goes on from", training.restored_from && html`<${Origin} from=${training.restored_from} />`],
        ]} />
      <//>
    </div>
    <${Attempts} attempts=${[]} handedOut=${training.attempts} />
  `;
}

/**
 * @param {{run: any, training: any, look: () => Promise<void>}} props training: undefined where the platform
 *   does not know the run
 */
function RunView({ run, training, look }) {
  const sweep = run.parent.sweep ?? run.index?.sweep;
  const recorded = run.files !== null; // else its store is away, and this is what the index has
  const last = run.attempts?.at(-1);
  // If an attempt failed, the reason comes before everything else.
  const isTroubled = training?.attempts.some((/** @type {any} */ attempt) => attempt.reason);
  const attempts = recorded && html`<${Attempts} attempts=${run.attempts} handedOut=${training?.attempts} />`;
  return html`
    <${Crumb} project=${run.project} sweep=${sweep} />
    <div class="page-top">
      <h1>${run.run}</h1>
      <${Badge} status=${run.status} />
      <div class="actions">
        ${training && html`<${Cancel} training=${training} look=${look} />`}
        <a class="button"
          href=${`/?filter=${encodeURIComponent(filterOf(run))}`}>Open in Compare</a>
        ${
          sweep &&
          html`<${DagsterLink} base=${session.value?.dagster_url} asset="trial" partition=${run.run} />`
        }
        <${ShareAsFile} what=${() => ({ run: `${run.project}/${run.run}` })} />
        <${ShareLink} project=${run.project}
          offers=${[{ kind: "run", target: `${run.project}/${run.run}`, words: "this run" }]} />
        <${Lifecycle} run=${run} look=${look} />
        ${
          run.parent.dagster_run &&
          session.value?.dagster_url &&
          html`<a class="button" target="_blank" rel="noopener"
            href=${`${session.value.dagster_url.replace(/\/$/, "")}/runs/${run.parent.dagster_run}`}>Its job ↗
              </a>`
        }
      </div>
    </div>
    <${LifecycleNotice} run=${run} />
    ${training && html`<${Standing} training=${training} />`}
    ${
      run.unavailable &&
      html`<p class="notice">${sentence(run.unavailable)}
        ${recorded && " What follows is from the run's own files."}</p>`
    }
    ${
      run.status === "unfinished" &&
      html`<p class="notice">No end is recorded and no process trains it. On the machine that did, this saves
        the points that are still there: <${Copy} text="halving recover" /></p>`
    }
    ${
      last?.dropped_points > 0 &&
      html`<p class="notice">${counted(last.dropped_points, "point")} of the last attempt were dropped,
        because its store was away for longer than the journal holds.</p>`
    }
    <dl class="figures">
      <div><dt>Started</dt>
        <dd><${Timestamp} time=${run.started} /><small><${Timestamp} time=${run.started} relative=${true} />
          </small></dd></div>
      <div><dt>Training time</dt>
        <dd>${duration(run.seconds)}
          ${recorded && html`<small>${counted(run.attempts.length, "attempt")}</small>`}</dd></div>
      <div><dt>Epoch</dt>
        <dd>${run.epoch ?? NONE}
          ${recorded && html`<small>${counted(run.checkpoints.length, "checkpoint")}</small>`}</dd></div>
      <div><dt>Model</dt>
        <dd><${PromotedAs} run=${run} /></dd></div>
    </dl>
    ${isTroubled && attempts}
    <${Metrics} run=${run} look=${look} />
    <${Notes} kind="run" subject=${`${run.project}/${run.run}`} />
    <div class="columns">
      <div class="stack">
        <${Params} params=${run.params} />
        <${Section} title="Belongs to">
          <${Facts} pairs=${[
            [
              "tags",
              Object.keys(run.tags).length > 0 &&
                html`<span class="tags">
                ${Object.entries(run.tags).map(
                  ([name, value]) =>
                    html`<span key=${name} class="tag">${name} <b>${display(value)}</b></span>`,
                )}</span>`,
            ],
            ["sweep", sweep && html`<a href=${`/sweeps/${sweep}`}>${sweep}</a>, trial ${run.parent.trial}`],
            [
              "goes on from",
              run.parent.restored_from && html`<${Origin} from=${run.parent.restored_from} />`,
            ],
            [
              "dataset",
              run.parent.dataset &&
                html`<${Dataset} name=${run.parent.dataset} snapshot=${run.parent.snapshot} />`,
            ],
            ["trainable", run.parent.trainable],
            ["imported from", run.parent.imported && sourceOf(run.parent.imported)],
            ["seed", run.seed === null ? "not set" : String(run.seed)],
            ...Object.entries(run.determinism ?? {}).map(
              ([name, value]) =>
                /** @type {[string, any]} */ ([name, value === null ? null : display(value)]),
            ),
          ]} />
        <//>
        ${training?.time_spent && html`<${TimeSpent} spent=${training.time_spent} />`}
      </div>
      ${
        recorded &&
        html`<div class="stack"><${Code} run=${run} id=${run.id} />
          <${Environment} provenance=${run.provenance} /></div>`
      }
    </div>
    ${
      recorded &&
      html`
      ${!isTroubled && attempts}
      <${Media} run=${run} id=${run.id} />
      <${Artifacts} run=${run} id=${run.id} />
      <${Checkpoints} run=${run} training=${training} />
      <${Files} run=${run} />
    `
    }
  `;
}

/** @param {{project: string, sweep?: string}} props */
function Crumb({ project, sweep }) {
  return html`<p class="crumb">
    <a href=${`/?filter=${encodeURIComponent(`project = '${project}'`)}`}>${project}</a>
    ${sweep && html` / <a href=${`/sweeps/${sweep}`}>${sweep}</a>`}</p>`;
}

/** @param {{name: string, snapshot: string | null | undefined}} props */
function Dataset({ name, snapshot }) {
  return html`<a href=${`/datasets/${encodeURIComponent(name)}?snapshot=${snapshot ?? ""}`}>
    ${name} <code>${shortDigest(snapshot)}</code></a>`;
}

/**
 * The checkpoint that a run began with.
 * @param {{from: {project: string, run: string, epoch: number}}} props
 */
function Origin({ from }) {
  return html`epoch ${from.epoch} of <a
    href=${`/runs/${encodeURIComponent(from.project)}/${encodeURIComponent(from.run)}`}>${from.run}</a>`;
}

/** A filter that finds the run, whatever its lifecycle. @param {any} run */
const filterOf = (run) =>
  `run = '${run.run}'${run.lifecycle === "active" ? "" : ` and lifecycle = ${run.lifecycle}`}`;

/**
 * Where a run was imported from.
 * @param {{tool: string, run: string, path?: string, uri: string}} imported
 */
const sourceOf = ({ tool, run, path, uri }) => `${tool}: ${run} in ${path ?? uri}`;

/** The version of a model that a run is. @param {{run: any}} props */
function PromotedAs({ run }) {
  if (run.index?.model) {
    const { model, version, stage } = run.index;
    return html`<a href=${`/models/${encodeURIComponent(model)}?version=${version}`}>
      ${version}</a><small>${model}, ${stage}</small>`;
  }
  const isKnown = run.index || !run.unavailable;
  return html`${NONE}<small>${isKnown ? "not promoted" : "not known now"}</small>`;
}
