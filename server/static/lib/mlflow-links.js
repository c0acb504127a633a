/**
 * MLflow's clients print links to pages of MLflow's own, such as `/#/experiments/1/runs/…`: what they mean is
 * here at another address.
 */
import { get } from "./api.js";
import { here } from "./base.js";

const RUN = /^#\/experiments\/[^/]+\/runs\/([\w-]+)/;
const EXPERIMENT = /^#\/experiments\/(\d+)/;
const MODEL = /^#\/models\/([^/]+)(?:\/versions\/(\d+))?/;

/**
 * The address of what a link of MLflow's means; all runs where it is none, or nothing of it is known.
 * @param {string} hash the part behind the address, with its #
 * @returns {Promise<string>}
 */
export async function placeOf(hash) {
  const [run, experiment, model] = [RUN, EXPERIMENT, MODEL].map((pattern) => pattern.exec(hash));
  try {
    if (run?.[1]) return await ofRun(run[1]);
    if (experiment?.[1]) return await ofExperiment(experiment[1]);
    if (model?.[1]) return await ofModel(decodeURIComponent(model[1]), Number(model[2] ?? 0));
  } catch {
    // The page that is shown instead says what is wrong with the server, or asks for a token.
  }
  return run?.[1] ? filtered(`run = ${run[1]}`) : "/";
}

/** @param {string} filter */
const filtered = (filter) => `/?${new URLSearchParams({ filter })}`;

/** @param {string} run */
async function ofRun(run) {
  const { runs } = await get(`/runs?${new URLSearchParams({ filter: `run = ${run}`, limit: "1" })}`);
  // A run that has only begun is not in the index yet: the table shows it as soon as it is.
  return runs.length ? `/runs/${encodeURIComponent(runs[0].project)}/${run}` : filtered(`run = ${run}`);
}

/** @param {string} experiment */
async function ofExperiment(experiment) {
  const body = JSON.stringify({ experiment_ids: [experiment], max_results: 1 });
  const headers = { "Content-Type": "application/json" };
  const answer = await fetch(here("/api/2.0/mlflow/runs/search"), {
    method: "POST",
    body,
    headers,
    credentials: "same-origin",
  });
  const { runs } = await answer.json();
  const { runs: indexed } = await get(
    `/runs?${new URLSearchParams({ filter: `run = ${runs[0].info.run_id}`, limit: "1" })}`,
  );
  return filtered(`project = ${indexed[0].project}`);
}

/** @param {string} model @param {number} number 0: none is named */
async function ofModel(model, number) {
  const page = `/models/${encodeURIComponent(model)}`;
  if (!number) return page;
  const { versions } = await get(page);
  const version = versions.find((/** @type {any} */ candidate) => candidate.number === number);
  return version ? `${page}?version=${version.version}` : page;
}
