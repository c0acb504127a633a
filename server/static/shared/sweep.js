/** What a sweep came to: its figures, its rungs, its leaderboard and its scores on held-out data. */
import { Badge, Facts, Section } from "../components/bits.js";
import { Ladder } from "../components/ladder.js";
import { BestSoFar } from "../components/lines.js";
import { NONE, counted, duration, number, param, shortDigest, timeTitle } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @type {Record<string, string>} */
const OUTCOMES = { pass: "passed", fail: "failed" };

/** @param {{sweep: any}} props */
export function Sweep({ sweep }) {
  const best = sweep.standings[0];
  const results = sweep.milestones.filter(
    (/** @type {any} */ milestone) => typeof milestone.value === "number",
  );
  return html`
    <dl class="figures">
      <div><dt>Status</dt><dd><${Badge} status=${sweep.status} /></dd></div>
      <div><dt>Best ${sweep.objective}</dt>
        <dd>${best ? number(best.objective) : NONE}
          <small>${best ? `trial ${best.trial}, ${counted(best.epochs, "epoch")}` : "no result yet"}</small>
        </dd></div>
      <div><dt>Trials</dt><dd>${sweep.started}<small>of ${sweep.planned} planned</small></dd></div>
      <div><dt>Epochs trained</dt>
        <dd>${sweep.epochs_trained}<small>of ${sweep.epochs_full} without early stopping</small></dd></div>
      <div><dt>Training time</dt><dd>${duration(sweep.seconds)}</dd></div>
    </dl>
    <${Section} title="Rung ladder">
      <${Ladder} rungs=${sweep.rungs} running=${new Map()} searching=${sweep.status === "searching"} /><//>
    ${
      results.length > 1 &&
      html`<${Section} title=${`${sweep.objective} over time`}>
        <${BestSoFar} results=${results} direction=${sweep.direction} metric=${sweep.objective} /><//>`
    }
    <${Leaderboard} sweep=${sweep} />
    ${sweep.report && html`<${Scores} report=${sweep.report} model=${sweep.model} />`}
    <${Section} title="What was launched">
      <${Facts} pairs=${[
        ["launched", timeTitle(sweep.created_at)],
        ["ended", timeTitle(sweep.finished_at)],
        ["project", sweep.project],
        ["objective", `${sweep.direction} ${sweep.objective}`],
        ["dataset", html`${sweep.spec.dataset?.name} <code>${shortDigest(sweep.snapshot)}</code>`],
        ["commit", sweep.commit && html`<code>${sweep.commit.slice(0, 12)}</code>`],
      ]} />
      <details class="after"><summary>The whole spec</summary>
        <pre tabindex="0">${JSON.stringify(sweep.spec, null, 2)}</pre></details>
    <//>
  `;
}

/** @param {{sweep: any}} props */
function Leaderboard({ sweep }) {
  const { standings } = sweep;
  const names = [...new Set(standings.flatMap((/** @type {any} */ trial) => Object.keys(trial.params)))];
  return html`<${Section} title="Leaderboard" count=${sweep.ranked}>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Leaderboard"><table>
      <thead><tr><th scope="col" class="right">#</th><th scope="col">Trial</th><th scope="col">Status</th>
        <th scope="col" class="right">${sweep.objective}</th><th scope="col" class="right">Epochs</th>
        ${names.map((name) => html`<th key=${name} scope="col" class="right">${name}</th>`)}</tr></thead>
      <tbody>${standings.map(
        (/** @type {any} */ trial, /** @type {number} */ index) => html`<tr key=${trial.key}>
        <td class="right muted">${index + 1}</td><th scope="row">${trial.key}</th>
        <td><${Badge} status=${became(trial, sweep)} /></td>
        <td class="right strong">${number(trial.objective)}</td><td class="right">${trial.epochs}</td>
        ${names.map(
          (name) => html`<td key=${name} class="right param">${param(trial.params[String(name)])}</td>`,
        )}</tr>`,
      )}</tbody></table></div>
    ${
      sweep.ranked > standings.length &&
      html`<p class="muted after">The first ${standings.length} of ${sweep.ranked}.</p>`
    }
    ${
      sweep.failed > 0 &&
      html`<details class="after"><summary>${counted(sweep.failed, "trial")} with an error</summary>
        <dl class="facts">${sweep.errors.map(
          (/** @type {any} */ trial) =>
            html`<div key=${trial.key}><dt>${trial.key}</dt><dd>${trial.error}</dd></div>`,
        )}</dl></details>`
    }
  <//>`;
}

/**
 * A trial's status for people: when the search is over, paused trials will not go on.
 * @param {any} trial
 * @param {any} sweep
 * @returns {string}
 */
const became = (trial, sweep) =>
  trial.status === "paused" && sweep.status !== "searching" ? "stopped" : trial.status;

/** @param {{report: any, model: any}} props */
function Scores({ report, model }) {
  return html`<${Section} title="On held-out data"
    aside=${model && html`<span>${model.model} ${model.version} <${Badge} status=${model.stage} /></span>`}>
    <${Facts} pairs=${Object.entries(report.metrics).map(([name, value]) => [name, number(value)])} />
    ${
      report.gates.length > 0 &&
      html`<dl class="facts after">${report.gates.map(
        (/** @type {any} */ gate) =>
          html`<div key=${gate.name + gate.about}><dt>${gate.name}</dt>
            <dd><${Badge} status=${OUTCOMES[gate.outcome] ?? gate.outcome} /> ${gate.reason}</dd>
          </div>`,
      )}</dl>`
    }
  <//>`;
}
