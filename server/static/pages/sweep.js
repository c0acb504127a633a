/** One sweep while it searches, and what came of it. */
import { computed, useSignal } from "@preact/signals";
import { Badge, Copy, DagsterLink, Facts, Loaded, Timestamp, Section, useTitle } from "../components/bits.js";
import { Confirm } from "../components/dialog.js";
import { Ladder } from "../components/ladder.js";
import { BestSoFar } from "../components/lines.js";
import { Notes } from "../components/notes.js";
import { ShareAsFile } from "../components/share.js";
import { ShareLink } from "../components/share-link.js";
import { SortHead, ordered } from "../components/sorting.js";
import { may, session, useWatched } from "../lib/api.js";
import {
  NONE,
  counted,
  duration,
  money,
  number,
  param,
  sentence,
  shortDigest,
  display,
} from "../lib/format.js";
import { html } from "../lib/html.js";
import { useShortcuts } from "../lib/keyboard.js";
import { query, setQuery } from "../lib/url-state.js";
import { standing } from "./sweeps.js";

const OVER = ["finished", "rejected", "held", "failed", "canceled"];
const FIRST = 100;

/** What can be done to a sweep: when, and what is asked before. */
const CONTROLS =
  /** @type {{does: string, label: string, danger?: boolean, when: (sweep: any) => boolean, text: string}[]} */ ([
    {
      does: "pause",
      label: "Pause",
      when: (sweep) => sweep.control === "run",
      text:
        "No more trials start. Running ones save a checkpoint and free their workers within seconds; " +
        "Resume continues them from there.",
    },
    {
      does: "resume",
      label: "Resume",
      when: (sweep) => sweep.control !== "run",
      text: "Trials start and go on again where they stand.",
    },
    {
      does: "stop",
      label: "Stop",
      danger: true,
      when: (sweep) => sweep.control !== "stop",
      text:
        "The search ends now, and the best trial so far is evaluated. " +
        "It cannot go on once its last trials have ended.",
    },
  ]);

const LEFT_OUT =
  " What has not begun of the final training is left out, and without one complete seed nothing is promoted.";

/** @param {{id: string}} props */
export default function Sweep({ id }) {
  useTitle(id);
  const watched = useWatched(`/hpo/studies/${encodeURIComponent(id)}`, {
    every: (data) => (OVER.includes(data?.status) ? 15000 : 1500),
  });
  const content = (/** @type {any} */ data) =>
    html`<${data.intent ? NotOpen : SweepView} sweep=${data} look=${() => watched.look()} />`;
  return html`<div class="page"><${Loaded} watched=${watched}>${content}<//></div>`;
}

/**
 * What was asked for and is no sweep yet, or never will be.
 * @param {{sweep: any, look: () => Promise<void>}} props
 */
function NotOpen({ sweep, look }) {
  const { waiting, error } = sweep.intent;
  const asking = useSignal(false);
  return html`
    <p class="crumb"><a href="/sweeps">Sweeps</a> / ${sweep.name}</p>
    <div class="page-top">
      <h1>${sweep.id}</h1>
      <${Badge} status=${sweep.status} />
      <div class="actions">
        ${
          waiting &&
          may("write") &&
          html`<button type="button" onClick=${() => (asking.value = true)}>Stop</button>`
        }</div>
    </div>
    <p class="notice">${waiting ? `Not open yet; it waits: ${waiting}` : `It was never opened: ${error}`}</p>
    <details class="after"><summary>The whole spec</summary>
      <pre tabindex="0">${JSON.stringify(sweep.spec, null, 2)}</pre></details>
    ${
      asking.value &&
      html`<${Confirm} title=${`Stop ${sweep.id}?`} text="It has not begun, and will not: nothing is trained."
        does="Stop" danger=${true}
        act=${async (/** @type {import("../lib/api.js").Send} */ send) => (
          await send(`/hpo/studies/${encodeURIComponent(sweep.id)}/stop`),
          await look()
        )} onClose=${() => (asking.value = false)} />`
    }
  `;
}

/** @param {{sweep: any, look: () => Promise<void>}} props */
function SweepView({ sweep, look }) {
  const searching = sweep.status === "searching";
  const best = sweep.standings[0];
  const dataset = sweep.spec.dataset?.name;
  const dagster = session.value?.dagster_url;
  return html`
    <p class="crumb"><a href="/sweeps">Sweeps</a> / ${sweep.name}</p>
    <div class="page-top">
      <h1>${sweep.id}</h1>
      <${Badge} status=${standing(sweep)} />
      <div class="actions">
        ${searching && may("write") && html`<${Controls} sweep=${sweep} look=${look} />`}
        <a class="button" href=${`/?filter=${encodeURIComponent(`sweep = '${sweep.id}'`)}`}>Compare its runs
        </a>
        ${
          sweep.report &&
          html`<a class="button" href=${`/api/v1/reports/${sweep.id}/page`} target="_blank">Report ↗</a>`
        }
        <${ShareAsFile} what=${() => ({ sweep: sweep.id })} />
        <${ShareLink} project=${sweep.project} offers=${offersOf(sweep)} />
        <${DagsterLink} base=${dagster} asset="sweep" partition=${sweep.id} />
      </div>
    </div>
    <${Said} sweep=${sweep} />
    <dl class="figures">
      <div><dt>Best ${sweep.objective}</dt>
        <dd>${best ? number(best.objective) : NONE}
          <small>
            ${
              best
                ? html`<a href=${run(sweep, best.key)}>trial ${best.trial}</a>
                , ${counted(best.epochs, "epoch")}`
                : "no result yet"
            }</small></dd></div>
      <div><dt>Trials</dt><dd>${started(sweep)} <small>of ${sweep.planned} started</small></dd></div>
      <div><dt>Epochs trained</dt>
        <dd>${sweep.epochs_trained}<small>of ${sweep.epochs_full} without early stopping</small></dd></div>
      <div><dt>Saved</dt><dd>${Math.round(100 * sweep.saved)} %<small>${saved(sweep)}</small></dd></div>
      <div><dt>Training time</dt>
        <dd>${duration(sweep.seconds)}
          <small>${sweep.gpu_seconds ? `${duration(sweep.gpu_seconds)} of GPU` : "no GPU asked for"}</small>
          </dd></div>
      <div><dt>Cost</dt>
        <dd title=${sweep.cost.text}>${money(sweep.cost.cost, sweep.cost.currency)}
          <small>${spared(sweep.cost)}</small></dd></div>
    </dl>
    <${Section} title="Rung ladder">
      <${Ladder} rungs=${sweep.rungs} running=${running(sweep)} searching=${searching} /><//>
    <${Progress} sweep=${sweep} />
    <${Final} sweep=${sweep} />
    <${Trials} sweep=${sweep} />
    <${Notes} kind="sweep" subject=${sweep.id} />
    <div class="columns">
      <${Section} title="What was launched">
        <${Facts} pairs=${[
          ["launched", html`<${Timestamp} time=${sweep.created_at} />`],
          [
            "project",
            html`<a href=${`/?filter=${encodeURIComponent(`project = '${sweep.project}'`)}`}>
            ${sweep.project}</a>`,
          ],
          ["priority", sweep.priority || null],
          ["ended", sweep.finished_at && html`<${Timestamp} time=${sweep.finished_at} />`],
          ["objective", `${sweep.direction} ${sweep.objective}`],
          ["strategy", Object.keys(sweep.spec.strategy).join(", ")],
          ["driver", sweep.driver],
          [
            "dataset",
            html`<a
            href=${`/datasets/${encodeURIComponent(dataset ?? "")}?snapshot=${sweep.snapshot}`}>
              ${dataset} <code>${shortDigest(sweep.snapshot)}</code></a>`,
          ],
          ["commit", sweep.commit && html`<code title=${sweep.commit}>${sweep.commit.slice(0, 12)}</code>`],
          ["preemptions", sweep.preemptions || null],
        ]} />
        <details class="after"><summary>The whole spec</summary>
          <pre tabindex="0">${JSON.stringify(sweep.spec, null, 2)}</pre></details>
      <//>
      <${Section} title="On the command line"><p><${Copy} text=${`halving leaderboard ${sweep.id}`} /></p><//>
    </div>
    ${sweep.report && html`<${Report} id=${sweep.id} />`}
  `;
}

/** What happened, and what to do next. @param {{sweep: any}} props */
function Said({ sweep }) {
  const model = sweep.model;
  if (sweep.status === "searching" && sweep.control === "pause")
    return html`<p class="notice">Paused: no
    trial starts until it is resumed.</p>`;
  if (sweep.status === "searching" && sweep.control === "stop")
    return html`<p class="notice">Being stopped:
    its last trials end now, then its best trial is evaluated.</p>`;
  if (sweep.status === "searching" && sweep.held_back)
    return html`<p class="notice">
    Waiting: ${sweep.held_back}</p>`;
  if (sweep.status === "searching" && sweep.problem)
    return html`<p class="notice">${sentence(sweep.problem)}
    </p>`;
  if (sweep.status === "searching" && sweep.final.length)
    return html`<p>The search is over;
    trial ${sweep.standings[0].trial} is trained again from scratch
    with ${counted(sweep.final_seeds, "seed")}, and the median one is then evaluated.</p>`;
  if (sweep.status === "evaluating")
    return html`<p>The search is over; its winner is being evaluated on the
    test split.</p>`;
  if (sweep.status === "rejected")
    return html`<p class="notice">The winner did not pass its gates, so nothing
    was promoted. The report says which and why.</p>`;
  if (sweep.status === "held")
    return html`<p class="notice">Promotion is held back: the test split is too
    small to say whether the winner passes its gates. The report says how many rows would settle it.</p>`;
  if (model) {
    const scores = Object.entries(model.metrics)
      .map(([name, value]) => `${name} ${number(value)}`)
      .join(", ");
    return html`<p>Its winner
      is <a href=${`/models/${encodeURIComponent(model.model)}?version=${model.version}`}>
        ${model.model} ${model.version}</a> <${Badge} status=${model.stage} />
        ${scores && html`, on the test split ${scores}`}.</p>`;
  }
  return null;
}

/** @param {{sweep: any, look: () => Promise<void>}} props */
function Controls({ sweep, look }) {
  const asking = useSignal("");
  const limit = useSignal(sweep.planned);
  const path = `/hpo/studies/${encodeURIComponent(sweep.id)}`;
  const close = () => (asking.value = "");
  const pending = CONTROLS.find((control) => control.does === asking.value);
  useShortcuts(
    [
      {
        keys: "p",
        does: "pause or resume the sweep",
        run: () => (asking.value = sweep.control === "run" ? "pause" : "resume"),
      },
    ],
    [sweep.control],
  );
  return html`
    ${CONTROLS.filter((control) => control.when(sweep)).map(
      (control) =>
        html`<button key=${control.does} type="button"
          onClick=${() => (asking.value = control.does)}>${control.label}</button>`,
    )}
    ${
      !sweep.final.length &&
      html`<button type="button"
        onClick=${() => ((limit.value = 2 * sweep.planned), (asking.value = "extend"))}>Extend</button>`
    }
    ${
      pending &&
      html`<${Confirm} title=${`${pending.label} ${sweep.id}?`}
        text=${pending.text + (pending.does === "stop" && sweep.final_seeds ? LEFT_OUT : "")}
          does=${pending.label} danger=${pending.danger}
        act=${async (/** @type {import("../lib/api.js").Send} */ send) => (
          await send(`${path}/${pending.does}`),
          await look()
        )} onClose=${close} />`
    }
    ${
      asking.value === "extend" &&
      html`<${Confirm} title=${`Extend ${sweep.id}`} text=${`It may start ${sweep.planned} trials now.`}
        does="Extend"
        act=${async (/** @type {import("../lib/api.js").Send} */ send) => (
          await send(`${path}/extend`, { max_trials: limit.value }),
          await look()
        )} onClose=${close}>
        <label>Trials in all <input type="number" min=${sweep.planned + 1} required value=${limit.value}
          onInput=${(/** @type {InputEvent & {currentTarget: HTMLInputElement}} */ event) =>
            (limit.value = Number(event.currentTarget.value))} /></label>
      <//>`
    }
  `;
}

/** @param {{sweep: any}} props */
function Progress({ sweep }) {
  const results = sweep.timeline.milestones.filter(
    (/** @type {any} */ milestone) => typeof milestone.value === "number" && !milestone.audit,
  );
  if (results.length < 2) return null;
  return html`<${Section} title=${`${sweep.objective} over time`} aside=${html`<span class="muted">a dot for
    each result at a rung, a line for the best so far</span>`}>
    <${BestSoFar} results=${results} direction=${sweep.direction} metric=${sweep.objective} />
  <//>`;
}

/** The winner's params trained again, seed by seed. @param {{sweep: any}} props */
function Final({ sweep }) {
  if (!sweep.final_seeds) return null;
  const isComplete = (/** @type {any} */ training) => training.status === "completed";
  const complete = sweep.final.filter(isComplete).length;
  const scores = sweep.final_scores;
  const metrics = Object.keys(scores?.mean ?? {});
  const metricsByKey = new Map(
    (scores?.seeds ?? []).map((/** @type {any} */ seed) => [seed.key, seed.metrics]),
  );
  const reasons = sweep.final.some((/** @type {any} */ training) => training.error);
  const spread = (/** @type {string} */ name) =>
    typeof scores.std[name] === "number"
      ? `${number(scores.mean[name])} ± ${number(scores.std[name], 2)}`
      : number(scores.mean[name]);
  const none =
    sweep.status === "searching" ? "It begins when the search has no more to do." : "It has not begun.";
  return html`<${Section} title="Final training"
    aside=${html`<span class="muted">${complete} of ${counted(sweep.final_seeds, "seed")} complete,
      on ${sweep.spec.final.on.join(" and ")}</span>`}>
    ${
      sweep.final.length
        ? html`<div class="scroll" tabindex="0" role="region" aria-label="Final training"><table>
        <thead><tr>
          <th scope="col">Trial</th><th scope="col" class="right">Seed</th><th scope="col">Status</th>
          ${metrics.map((name) => html`<th key=${name} scope="col" class="right">test ${name}</th>`)}
          <th scope="col" class="right">Epochs</th><th scope="col" class="right">Time</th>
          ${reasons && html`<th scope="col">Its last error</th>`}
        </tr></thead>
        <tbody>
          ${sweep.final.map(
            (/** @type {any} */ training) => html`<tr key=${training.key}>
            <th scope="row"><a href=${run(sweep, training.key)}>${training.key}</a></th>
            <td class="right">${training.seed + 1}</td>
            <td><${Badge} status=${training.status} />
              ${training.key === scores?.promotable && html` <strong>the median</strong>`}</td>
            ${metrics.map(
              (name) =>
                html`<td key=${name} class="right">${number(metricsByKey.get(training.key)?.[name])}</td>`,
            )}
            <td class="right">${training.epochs ?? NONE}</td>
            <td class="right">${duration(training.seconds)}</td>
            ${reasons && html`<td class="wrap muted">${training.reason ?? ""}</td>`}
          </tr>`,
          )}
          ${
            metrics.length > 0 &&
            html`<tr><td colspan="3">mean ± standard deviation</td>
              ${metrics.map((name) => html`<td key=${name} class="right">${spread(name)}</td>`)}<td></td><td>
              </td>${reasons && html`<td></td>`}</tr>`
          }
        </tbody></table></div>`
        : html`<p class="muted">${none}</p>`
    }
  <//>`;
}

const status = computed(() => query.value.get("status") ?? "");
const all = computed(() => query.value.get("trials") === "all");

/** @param {{sweep: any}} props */
function Trials({ sweep }) {
  const rank = new Map(
    sweep.standings.map((/** @type {any} */ trial, /** @type {number} */ index) => [trial.trial, index + 1]),
  );
  const place = (/** @type {any} */ trial) => rank.get(trial.number) ?? Infinity;
  const searched = sweep.trials.filter((/** @type {any} */ trial) => trial.final === null);
  const statuses = [...new Set(searched.map((/** @type {any} */ trial) => became(trial, sweep)))].sort();
  const chosen = searched.filter(
    (/** @type {any} */ trial) => !status.value || became(trial, sweep) === status.value,
  );
  chosen.sort((/** @type {any} */ left, /** @type {any} */ right) =>
    place(left) === place(right) ? left.number - right.number : place(left) - place(right),
  );
  const rows = ordered(chosen, (trial, by) => valueOf(trial, by, sweep, rank));
  const listed = all.value ? rows : rows.slice(0, FIRST);
  const params = [...new Set(sweep.trials.flatMap((/** @type {any} */ trial) => Object.keys(trial.params)))];
  const reasons = chosen.some((/** @type {any} */ trial) => trial.waiting || trial.error);
  return html`<${Section} title="Trials" count=${chosen.length} aside=${html`
      <label class="muted">
        Status <select
          value=${status.value}
            onChange=${(/** @type {Event & {currentTarget: HTMLSelectElement}} */ event) =>
              setQuery({ status: event.currentTarget.value })}>
        <option value="">all</option>
        ${statuses.map(
          (name) =>
            html`<option key=${name} value=${name} selected=${name === status.value}>${name}</option>`,
        )}
      </select></label>`}>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Trials">
      <table>
        <thead><tr>
          <${SortHead} by="rank" name="#" right=${true} /><${SortHead} by="trial" name="Trial" />
          <${SortHead} by="status" name="Status" />
          <${SortHead} by="objective" name=${sweep.objective} right=${true} />
          <${SortHead} by="epochs" name="Epochs" right=${true} />
          ${params.map(
            (name) => html`<${SortHead} key=${name} by=${`params.${name}`} name=${name} right=${true} />`,
          )}
          <${SortHead} by="time" name="Time" right=${true} />
          ${reasons && html`<th scope="col">Why it does not train</th>`}
        </tr></thead>
        <tbody>${listed.map(
          (/** @type {any} */ trial) => html`<tr key=${trial.key}>
            <td class="right muted">${rank.get(trial.number) ?? NONE}</td>
            <th scope="row"><a href=${run(sweep, trial.key)}>${trial.key}</a></th>
            <td><${Badge} status=${became(trial, sweep)} /></td>
            <td class="right strong">${number(trial.objective)}</td>
            <td class="right">${trial.epochs ?? NONE}</td>
            ${params.map(
              (name) =>
                html`<td key=${name} class="right param" title=${param(trial.params[name])}>
                  ${param(trial.params[name])}</td>`,
            )}
            <td class="right">${duration(trial.seconds)}</td>
            ${reasons && html`<td class="wrap muted">${trial.waiting ?? trial.error ?? ""}</td>`}
          </tr>`,
        )}</tbody>
      </table>
    </div>
    ${
      chosen.length > listed.length &&
      html`<p class="more">
        <button type="button" onClick=${() => setQuery({ trials: "all" })}>Show all ${chosen.length} trials
        </button></p>`
    }
  <//>`;
}

/**
 * What a column of the trials' table has of a trial.
 * @param {any} trial
 * @param {string} by
 * @param {any} sweep
 * @param {Map<number, number>} rank
 */
function valueOf(trial, by, sweep, rank) {
  if (by === "rank") return rank.get(trial.number);
  if (by === "trial") return trial.number;
  if (by === "status") return became(trial, sweep);
  if (by === "time") return trial.seconds;
  if (!by.startsWith("params.")) return trial[by];
  const value = trial.params[by.slice("params.".length)];
  return typeof value === "object" && value !== null ? display(value) : value;
}

/** What a view-only link can show of a sweep. @param {any} sweep */
const offersOf = (sweep) => [
  { kind: "sweep", target: sweep.id, words: "this sweep with its runs" },
  ...(sweep.report ? [{ kind: "report", target: sweep.id, words: "its report" }] : []),
];

/**
 * The report's own figures, which bring Plotly with them: only when they are asked for.
 * @param {{id: string}} props
 */
function Report({ id }) {
  const open = useSignal(false);
  return html`<section class="card">
    <details
      onToggle=${(/** @type {Event & {currentTarget: HTMLDetailsElement}} */ event) =>
        (open.value = event.currentTarget.open)}>
      <summary><strong>The report with its figures
        </strong> <span class="muted">importances, slices, parallel coordinates, confusion</span></summary>
      ${
        open.value &&
        html`<iframe class="report"
          title=${`Report of ${id}`} src=${`/api/v1/reports/${encodeURIComponent(id)}/page`}
            sandbox="allow-scripts" />`
      }
    </details>
  </section>`;
}

/**
 * A trial's status for people: when the search is over, paused trials will not go on.
 * @param {any} trial
 * @param {any} sweep
 * @returns {string}
 */
const became = (trial, sweep) =>
  trial.status === "paused" && sweep.status !== "searching" ? "stopped" : trial.status;

/**
 * @param {any} sweep
 * @param {string} key
 */
const run = (sweep, key) => `/runs/${encodeURIComponent(sweep.project)}/${encodeURIComponent(key)}`;

/** @param {any} sweep */
const started = (sweep) =>
  sweep.trials.filter((/** @type {any} */ trial) => trial.status !== "suggested" && trial.final === null)
    .length;

/** @param {any} sweep */
function saved(sweep) {
  if (sweep.gpu_seconds_saved) return `${duration(sweep.gpu_seconds_saved)} of GPU by early stopping`;
  return sweep.seconds_saved ? `${duration(sweep.seconds_saved)} by early stopping` : "by early stopping";
}

/** @param {any} cost */
const spared = (cost) =>
  cost.saved ? `${money(cost.saved, cost.currency)} saved by early stopping` : `prices of ${cost.prices_of}`;

/**
 * How many trials are on their way to each rung now.
 * @param {any} sweep
 */
function running(sweep) {
  /** @type {Map<string, number>} */
  const waits = new Map();
  if (sweep.status !== "searching") return waits;
  for (const attempt of sweep.timeline.attempts) {
    const trial = sweep.trials[attempt.trial];
    if (attempt.ended || trial?.status !== "running") continue;
    const next = `${attempt.bracket}/${Math.max(attempt.rung, trial.rung === null ? 0 : trial.rung + 1)}`;
    waits.set(next, (waits.get(next) ?? 0) + 1);
  }
  return waits;
}
