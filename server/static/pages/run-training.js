/**
 * Where the platform stands with a run that it trains, and what can be done to it: cancel, and go on from a
 * checkpoint.
 */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { Facts, Timestamp, Section } from "../components/bits.js";
import { Confirm } from "../components/dialog.js";
import { Watched, may } from "../lib/api.js";
import { counted, number, sentence, shortDigest } from "../lib/format.js";
import { html } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { checkpoint } from "./run-files.js";
import { Whole } from "./run-record.js";

const CANCELING =
  "It saves a checkpoint and ends. It cannot be resumed, but a new run can go on from one " +
  "of its checkpoints.";

/** The platform's runs are named like digits-7f3a.0000; all others are a script's own. */
const TRIAL = /.-[0-9a-f]+\.\d{4,}$/;
/**
 * Milliseconds between looks: long where the run's own record says what is new. States that are not here are
 * final, as all are once the sweep is over.
 */
const PACE = /** @type {Record<string, number>} */ ({
  waiting: 2000,
  running: 10000,
  canceling: 2000,
  paused: 10000,
});
const CANCELABLE = ["waiting", "running", "paused"];

/**
 * @param {string} project
 * @param {string} run
 */
const pathOf = (project, run) => `/training-runs/${encodeURIComponent(project)}/${encodeURIComponent(run)}`;

/**
 * What the catalog says of a run, while a component is shown; null of a run that cannot be the platform's.
 * @param {string} project
 * @param {string} run
 */
export function useTraining(project, run) {
  const watched = useMemo(
    () =>
      TRIAL.test(run)
        ? new Watched(pathOf(project, run), {
            every: (data) => (data?.finished_at ? 0 : (PACE[data?.status] ?? 0)),
          })
        : null,
    [project, run],
  );
  useEffect(() => () => watched?.close(), [watched]);
  return watched;
}

/**
 * Why a run does not train now, or how it ended, where its record does not say so; what keeps it from
 * computing, and what it left out.
 * @param {{training: any}} props
 */
export function Standing({ training }) {
  const { status, error, reason, attempts, time_spent: spent, skips } = training;
  const newest = attempts.findLast((/** @type {any} */ attempt) => attempt.ended);
  return html`
    <${Ended} training=${training} />
    ${
      status !== "failed" &&
      reason &&
      html`<p class="notice">${`Attempt ${newest?.attempt ?? 1} ended early: ${reason}`}</p>`
    }
    ${
      error &&
      error.trim() !== reason &&
      html`<div class="notice"><${Whole} text=${error} summary="All that it said" /></div>`
    }
    ${spent?.warning && html`<p class="notice">${sentence(spent.warning)}</p>`}
    ${skips?.texts.map(
      (/** @type {string} */ text) => html`<p key=${text} class="notice">${sentence(text)}</p>`,
    )}
  `;
}

/** Percent of the time of its ranks; what was not measured is left out. @param {{spent: any}} props */
export function TimeSpent({ spent }) {
  const { computing, data_wait: data, collectives, saves, gpu, straggler } = spent;
  const shares = /** @type {[string, number | null][]} */ ([
    ["computing", computing],
    ["waiting for data", data],
    ["collectives", collectives],
    ["saves", saves],
    ["GPUs busy", gpu],
  ]);
  return html`<${Section} title="Where its time went">
    <${Facts} pairs=${[
      ...shares.map(([name, share]) => [name, share !== null && `${Math.round(share)} %`]),
      [
        "straggler",
        straggler && `rank ${straggler.rank}, ${number(straggler.times, 2)} times as long as the others`,
      ],
    ]} />
  <//>`;
}

/** @param {{training: any}} props */
function Ended({ training }) {
  const { status, waiting, reason, attempts } = training;
  if (status === "canceling")
    return html`<p class="notice">Being canceled: it saves a checkpoint and ends
    within seconds.</p>`;
  if (status === "canceled")
    return html`<p class="notice">
    ${attempts.length ? "Canceled. A new run can go on from its checkpoints." : "Canceled before it began."}
    </p>`;
  if (status === "failed" && reason) return html`<p class="notice">Why it failed: ${reason}</p>`;
  return waiting ? html`<p class="notice">Waiting: ${waiting}</p>` : null;
}

/** @param {{training: any, look: () => Promise<void>}} props */
export function Cancel({ training, look }) {
  const asking = useSignal(false);
  if (!training.on_its_own || training.finished_at || !CANCELABLE.includes(training.status) || !may("write"))
    return null;
  /** @param {import("../lib/api.js").Send} send */
  const cancel = async (send) => {
    await send(`${pathOf(training.project, training.run)}/cancel`);
    await look();
  };
  return html`
    <button type="button" onClick=${() => (asking.value = true)}>Cancel</button>
    ${
      asking.value &&
      html`<${Confirm} title=${`Cancel ${training.run}?`} does="Cancel the run" leaves="Let it train"
        danger=${true} act=${cancel} onClose=${() => (asking.value = false)}
        text=${CANCELING} />`
    }
  `;
}

/**
 * @param {{run: any, training: any}} props training: undefined where the platform does not know the run,
 *   which then cannot be restored
 */
export function Checkpoints({ run, training }) {
  const chosen = useSignal(0);
  if (!run.checkpoints.length) return null;
  const newest = [...run.checkpoints].reverse();
  const metrics = [...new Set(newest.flatMap((checkpoint) => Object.keys(checkpoint.reported ?? {})))];
  const restorable = training && may("write");
  return html`<${Section} title="Checkpoints" count=${newest.length}>
    <div class="scroll tall" tabindex="0" role="region" aria-label="Checkpoints, the newest first">
      <table>
        <thead><tr>
          <th scope="col" class="right">Epoch</th><th scope="col" class="right">Attempt</th>
          ${metrics.map((name) => html`<th key=${name} scope="col" class="right">${name}</th>`)}
          <th scope="col">Saved</th><th scope="col">Digest</th>
          ${restorable && html`<th scope="col"><span class="sr-only">Go on</span></th>`}
        </tr></thead>
        <tbody>${newest.map(
          (row, index) => html`<tr key=${`${row.attempt}-${row.epoch}-${row.digest}`}>
            <th scope="row" class="right">${row.epoch}</th><td class="right">${row.attempt}</td>
            ${metrics.map(
              (name) => html`<td key=${name} class="right">${number(row.reported?.[name])}</td>`,
            )}
            <td><${Timestamp} time=${row.time} /></td>
            <td class="mono">
              <a href=${checkpoint(run.id, row.digest)} download title=${row.digest}>
                ${shortDigest(row.digest)}</a></td>
            ${
              restorable &&
              html`<td class="right">
                ${
                  newest.findIndex((other) => other.epoch === row.epoch) === index &&
                  html`<button type="button" class="small"
                    aria-label=${`Go on from it: epoch ${row.epoch}`} onClick=${() =>
                      (chosen.value = row.epoch)}>Go on from it</button>`
                }</td>`
            }
          </tr>`,
        )}</tbody>
      </table>
    </div>
    ${
      chosen.value > 0 &&
      html`<${Restore} training=${training} epoch=${chosen.value} onClose=${() => (chosen.value = 0)} />`
    }
  <//>`;
}

/** @param {{training: any, epoch: number, onClose: () => void}} props */
function Restore({ training, epoch, onClose }) {
  const epochs = useSignal(training.epochs > epoch ? training.epochs : 2 * epoch);
  /** @param {import("../lib/api.js").Send} send */
  const restore = async (send) => {
    const started = await send(`${pathOf(training.project, training.run)}/checkpoints/${epoch}/restore`, {
      epochs: epochs.value,
    });
    navigate(`/runs/${encodeURIComponent(started.project)}/${encodeURIComponent(started.run)}`);
  };
  return html`<${Confirm} title=${`Go on from epoch ${epoch}?`} does="Start the run"
    act=${restore} onClose=${onClose}
    text=${
      `A new run begins with this checkpoint of ${training.run}: the same hyperparameters, ` +
      `the same data. It has trained ${counted(epoch, "epoch")}.`
    }>
    <label>Epochs in all <input type="number" min=${epoch + 1} required value=${epochs.value}
      onInput=${(/** @type {InputEvent & {currentTarget: HTMLInputElement}} */ event) =>
        (epochs.value = Number(event.currentTarget.value))} /></label>
  <//>`;
}
