/** One model: its versions, where each comes from, what it had to pass, and which is in use. */
import { useSignal } from "@preact/signals";
import { Badge, Copy, DagsterLink, Facts, Loaded, Timestamp, Section, useTitle } from "../components/bits.js";
import { Confirm } from "../components/dialog.js";
import { Notes } from "../components/notes.js";
import { Problem } from "../components/problem.js";
import { may, session, trouble, useWatched } from "../lib/api.js";
import { NONE, number, shortDigest } from "../lib/format.js";
import { html } from "../lib/html.js";
import { query } from "../lib/url-state.js";

/** @param {{name: string}} props */
export default function Model({ name }) {
  useTitle(name);
  const watched = useWatched(`/models/${encodeURIComponent(name)}`, { every: 5000 });
  return html`<div class="page">
    <p class="crumb"><a href="/models">Models</a></p>
    <${Loaded} watched=${watched}>
      ${(/** @type {any} */ data) => html`<${ModelView} model=${data} look=${() => watched.look()} />`}<//>
  </div>`;
}

/**
 * @param {{model: {model: string, description: string, tags: Record<string, string>, aliases: Record<string,
 *   string>, versions: any[]}, look: () => Promise<void>}} props
 */
function ModelView({ model, look }) {
  const versions = [...model.versions].reverse();
  const champion = versions.find((version) => version.stage === "champion");
  const chosen =
    versions.find((version) => version.version === query.value.get("version")) ?? champion ?? versions[0];
  const metrics = [...new Set(versions.flatMap((version) => Object.keys(version.metrics)))];
  return html`
    <div class="page-top">
      <h1>${model.model}</h1>
      ${
        champion
          ? html`<${Badge} status="champion" /> <span>${champion.version}</span>`
          : html`<span class="muted">has no champion</span>`
      }
      ${may("write") && html`<${Rollback} model=${model.model} champion=${champion} look=${look} />`}
    </div>
    ${
      !champion &&
      html`<p class="notice">No version is in use. Promote one here, or let the next winner that passes its
        gates become the champion.</p>`
    }
    ${model.description && html`<p>${model.description}</p>`}
    ${Object.keys(model.tags).length > 0 && html`<${Facts} pairs=${Object.entries(model.tags)} />`}
    <${Section} title="Versions"
      count=${versions.length} aside=${html`<span class="muted">scores on the test split</span>`}>
      <div class="scroll" tabindex="0" role="region" aria-label="Versions, the newest first">
        <table>
          <thead><tr>
            <th scope="col">Version</th><th scope="col">Stage</th>
            ${metrics.map((name) => html`<th key=${name} scope="col" class="right">${name}</th>`)}
            <th scope="col">From</th><th scope="col">Run</th><th scope="col">Framework</th>
            <th scope="col" class="right">Registered</th><th scope="col"><span class="sr-only">Change</span>
            </th>
          </tr></thead>
          <tbody>${versions.map(
            (version) => html`<tr key=${version.version} class=${version === chosen ? "chosen" : ""}>
              <th scope="row">
                <a href=${`?version=${version.version}`}
                  aria-current=${version === chosen ? "true" : undefined}>
                  ${version.version}</a></th>
              <td><${Badge} status=${version.stage} />
                ${aliases(model, version.version).map(
                  (name) => html` <span key=${name} class="muted">@${name}</span>`,
                )}</td>
              ${metrics.map(
                (name) =>
                  html`<td key=${name} class=${version === champion ? "right strong" : "right"}>
                    ${number(version.metrics[name])}</td>`,
              )}
              <td>${
                version.sweep
                  ? html`<a href=${`/sweeps/${version.sweep}`}>${version.sweep}</a>`
                  : html`<span class="muted">a client, as ${version.number}</span>`
              }</td>
              <td>${
                version.project
                  ? html`<a href=${runAddress(version)}>${version.trial ?? version.run}</a>`
                  : (version.run ?? NONE)
              }</td>
              <td>${version.framework}</td><td class="right"><${Timestamp} time=${version.created_at} /></td>
              <td class="right">
                ${may("write") && html`<${Change} version=${version} champion=${champion} look=${look} />`}</td>
            </tr>`,
          )}</tbody>
        </table>
      </div>
    <//>
    ${chosen && html`<${Origin} key=${chosen.version} version=${chosen} />`}
    <${Notes} kind="model" subject=${model.model} />
    <${History} model=${model.model} />
  `;
}

/** @param {any} model @param {string} version */
const aliases = (model, version) =>
  Object.keys(model.aliases).filter((name) => model.aliases[name] === version);

/** @param {any} version */
const runAddress = (version) =>
  `/runs/${encodeURIComponent(version.project)}/${encodeURIComponent(version.run)}`;

/**
 * What may be done to a version: the words of its button and its dialog.
 * @param {any} version
 * @param {any} champion
 */
function changes(version, champion) {
  const named = `${version.model} ${version.version}`;
  const replaced = champion
    ? ` ${champion.version}, the champion until now, is archived; a rollback takes it back.`
    : "";
  const promote = {
    does: "Promote",
    title: `Promote ${named}?`,
    text:
      `It becomes the champion, if its gates and people let it: what asks for the champion of ` +
      `${version.model} gets it from now on.${replaced}`,
    forces: true,
  };
  const approve = {
    does: "Approve",
    title: `Approve ${named}?`,
    text: "It is written down in your name, with the reason, for good.",
    why: true,
  };
  const reject = {
    does: "Reject",
    title: `Reject ${named}?`,
    text: "It is not promoted, unless by force, until you approve it.",
    why: true,
  };
  const archive = {
    does: "Archive",
    title: `Archive ${named}?`,
    danger: version.stage === "champion",
    text:
      version.stage === "champion"
        ? `${version.model} then has no champion, and what asks for it gets an error, until you promote ` +
          "another version or the next winner passes its gates."
        : "It is taken out of use. It can be promoted later all the same.",
  };
  return {
    ...(version.stage !== "champion" ? { promote } : {}),
    ...(version.stage === "staging" ? { approve, reject } : {}),
    ...(version.stage !== "archived" ? { archive } : {}),
  };
}

/** @param {{version: any, champion: any, look: () => Promise<void>}} props */
function Change({ version, champion, look }) {
  const asking = useSignal("");
  const path = `/models/${encodeURIComponent(version.model)}/versions/${version.version}`;
  /** @type {Record<string, any>} */
  const possible = changes(version, champion);
  const decision = possible[asking.value];
  return html`<span class="row-actions">
    ${Object.entries(possible).map(
      ([name, { does }]) =>
        html`<button key=${name} type="button" class="small"
          aria-label=${`${does}: ${version.model} ${version.version}`}
        onClick=${() => (asking.value = name)}>${does}</button>`,
    )}
    ${
      decision &&
      html`<${Decide} key=${asking.value} decision=${decision} path=${`${path}/${asking.value}`} look=${look}
        onClose=${() => (asking.value = "")} />`
    }
  </span>`;
}

/** Back to the champion before. @param {{model: string, champion: any, look: () => Promise<void>}} props */
function Rollback({ model, champion, look }) {
  const asking = useSignal(false);
  const decision = {
    does: "Roll back",
    title: `Roll ${model} back?`,
    text:
      `The champion before ${champion ? champion.version : "the last one"} becomes the champion again, ` +
      "without asking its gates. Once more, and it goes back one more.",
  };
  return html`<button type="button" class="small"
    aria-label=${`Roll back: ${model}`} onClick=${() => (asking.value = true)}>Roll back</button>
    ${
      asking.value &&
      html`<${Decide} decision=${decision} path=${`/models/${encodeURIComponent(model)}/rollback`}
        look=${look} onClose=${() => (asking.value = false)} />`
    }`;
}

/**
 * Asks, with the reason that is written down.
 * @param {{decision: {does: string, title: string, text: string, danger?: boolean, why?: boolean, forces?:
 *   boolean}, path: string, look: () => Promise<void>, onClose: () => void}} props why: a reason is needed;
 *   forces: it may be done although something is against it
 */
function Decide({ decision, path, look, onClose }) {
  const note = useSignal("");
  const force = useSignal(false);
  /** @param {import("../lib/api.js").Send} send */
  const act = async (send) => {
    const why = note.value.trim() || null;
    await send(path, decision.forces ? { note: why, force: force.value } : { note: why });
    await look();
  };
  return html`<${Confirm} title=${decision.title} does=${decision.does} danger=${
    decision.danger ?? false
  } act=${act} onClose=${onClose} text=${decision.text}>
    <label>
      Why <textarea rows="2" maxlength="10000" required=${decision.why || force.value} value=${note.value}
        onInput=${(/** @type {any} */ event) => (note.value = event.currentTarget.value)}></textarea>
    </label>
    ${
      decision.forces &&
      html`<label>
        <input type="checkbox"
          checked=${force.value} onChange=${(/** @type {any} */ event) =>
            (force.value = event.currentTarget.checked)} />
        ${" "}although a gate, a newer champion or somebody holds it back; this is written down</label>`
    }
  <//>`;
}

const MAX_EVENTS = 1000; // that one answer of the server has

/** Who decided what, when and why; at first only the newest events. @param {{model: string}} props */
function History({ model }) {
  const all = useSignal(false);
  const watched = useWatched(
    `/models/${encodeURIComponent(model)}/history${all.value ? `?limit=${MAX_EVENTS}` : ""}`,
    { every: 5000 },
  );
  return html`<${Section} title="History" aside=${html`<span class="muted">kept for good</span>`}>
    <${Loaded} watched=${watched} part=${true}>${(/** @type {any} */ data) => html`
      <div class="scroll" tabindex="0" role="region" aria-label="History, the newest first">
        <table>
          <thead>
            <tr><th scope="col">When</th><th scope="col">Who</th><th scope="col">What</th><th scope="col">Why
              </th></tr></thead>
          <tbody>${[...data.events].reverse().map(
            (/** @type {any} */ event) =>
              html`<tr key=${event.id}><td><${Timestamp} time=${event.at} /></td><td>${event.actor}</td>
                <td>${event.summary}</td><td>${event.note ?? NONE}</td></tr>`,
          )}</tbody>
        </table>
      </div>
      ${
        data.earlier !== null &&
        (all.value
          ? html`<p class="muted">What is older: <code>halving models show ${model}</code></p>`
          : html`<p><button type="button" onClick=${() => (all.value = true)}>Show earlier events</button>
            </p>`)
      }`}<//>
  <//>`;
}

/** @param {{version: any}} props */
function Origin({ version }) {
  const named = `${version.model} ${version.version}`;
  if (!version.sweep) return html`<${Registered} version=${version} />`;
  return html`
    <${Section} title=${`Where ${named} comes from`} aside=${html`<span class="actions">
      <a class="button" href=${`/api/v1/reports/${version.sweep}/page`} target="_blank">Report ↗</a>
      <${DagsterLink} base=${session.value?.dagster_url} asset="promoted_checkpoint"
        partition=${version.sweep} /></span>`}>
      <${Lineage} version=${version} />
    <//>
    <div class="columns">
      <${Gates} version=${version} />
      <${Section} title="To use it">
        <${Facts} pairs=${[
          [
            "checkpoint",
            html`<${Copy} text=${version.checkpoint} shortText=${shortDigest(
              version.checkpoint,
            )} label="the digest of the checkpoint" />`,
          ],
          ["framework", version.framework],
        ]} />
        ${version.stage === "champion" && html`<${Champion} model=${version.model} />`}
      <//>
    </div>
  `;
}

/** A version that a client registered itself. @param {{version: any}} props */
function Registered({ version }) {
  const run = version.project
    ? html`<a href=${runAddress(version)}>${version.project}/${version.run}
    </a>`
    : (version.run ?? NONE);
  return html`<${Section} title=${`Where ${version.model} ${version.version} comes from`}>
    <${Facts} pairs=${[
      ["description", version.description],
      ["registered by", html`a client of MLflow's API, as version ${version.number}`],
      ["run", run],
      ["source", html`<${Copy} text=${version.source} shortText=${version.source} label="the source" />`],
      [
        "to fetch it",
        html`<${Copy} text=${`models:/${version.model}/${version.number}`}
          shortText=${`models:/${version.model}/${version.number}`}
            label="its address for MLflow's clients" />`,
      ],
      ...Object.entries(version.tags),
    ]} />
  <//>`;
}

/** From the data and the code to the version, each step a link. @param {{version: any}} props */
function Lineage({ version }) {
  const watchedRun = useWatched(
    `/runs/${encodeURIComponent(version.model)}/${encodeURIComponent(version.run)}`,
    { every: 0 },
  );
  const watchedSweep = useWatched(`/hpo/studies/${encodeURIComponent(version.sweep)}`, { every: 0 });
  const [run, sweep] = [watchedRun.data.value, watchedSweep.data.value];
  const commit = run?.provenance?.git?.commit ?? sweep?.commit;
  const dirty = run?.provenance?.git?.dirty;
  const dataset = sweep?.spec.dataset?.name ?? run?.parent?.dataset;
  const steps = [
    [
      "snapshot",
      dataset
        ? html`<a
      href=${`/datasets/${encodeURIComponent(dataset)}?snapshot=${version.snapshot}`}>
        ${dataset} <code>${shortDigest(version.snapshot)}</code>
        </a>`
        : html`<code>${shortDigest(version.snapshot)}</code>`,
      "the data, as it was",
    ],
    ...(version.features.length
      ? [
          [
            "features",
            html`<span>${version.features.join(", ")}
      </span>`,
            "known at each label's time",
          ],
        ]
      : []),
    [
      "commit",
      commit
        ? html`<code title=${commit}>${commit.slice(0, 12)}
      </code>`
        : NONE,
      dirty ? "with changes, which the run keeps" : "the code",
    ],
    [
      "sweep",
      html`<a href=${`/sweeps/${version.sweep}`}>${version.sweep}
      </a>`,
      sweep ? `${sweep.trials.length} trials` : "",
    ],
    [
      "trial",
      html`<a href=${`/runs/${encodeURIComponent(version.model)}/${version.run}`}>${version.run}
      </a>`,
      run ? `${run.epoch} epochs` : "",
    ],
    ["version", html`<b>${version.version}</b>`, version.stage],
  ];
  return html`<ol class="lineage">
    ${steps.map(
      ([name, value, note]) =>
        html`<li key=${name}><span class="muted">${name}</span><span>${value}</span>
          <small class="muted">${note}</small></li>`,
    )}</ol>
    <${Problem} text=${trouble(watchedRun) || trouble(watchedSweep)} />`;
}

/** @type {Record<string, string>} the badges of a gate's outcomes; of others, it is held */
const OUTCOMES = { pass: "passed", fail: "failed" };

/** @param {{version: any}} props */
function Gates({ version }) {
  const against = version.judged_against ? `against ${version.judged_against}` : "there was no champion";
  return html`<${Section} title="Gates"
    aside=${html`<span class="muted">${version.gates.length ? against : ""}</span>`}>
    ${
      version.gates.length
        ? html`<ul class="gates">
      ${version.gates.map(
        (/** @type {any} */ gate) =>
          html`<li key=${gate.name + gate.about}>
            <${Badge} status=${OUTCOMES[gate.outcome] ?? "held"} title=${gate.outcome} />
                <div><b>${gate.name.replaceAll("_", " ")}</b><br /><span class="muted">${gate.reason}</span>
                </div></li>`,
      )}
    </ul>`
        : html`<p class="muted">It was registered before verdicts were kept.</p>`
    }
  <//>`;
}

/** What a server of the model needs to know. @param {{model: string}} props */
function Champion({ model }) {
  const watched = useWatched(`/models/${encodeURIComponent(model)}/champion`, { every: 0 });
  return html`<${Loaded} watched=${watched} part=${true}>${(/** @type {any} */ data) => html`
    <details class="after"><summary>Its inputs and outputs</summary>
      <pre tabindex="0">${JSON.stringify({ input: data.input_schema, output: data.output_schema }, null, 2)}
      </pre></details>
    <p class="after"><a class="button" href=${data.url} download>Download the checkpoint</a></p>`}<//>`;
}
