/** What a run's record says of it: params, code, environment, attempts, and where its files are. */
import { useSignal } from "@preact/signals";
import { Badge, Copy, Facts, Timestamp, Section } from "../components/bits.js";
import { request } from "../lib/api.js";
import { NONE, counted, duration, param, shortDigest, size } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @param {{params: Record<string, unknown>}} props */
export function Params({ params }) {
  const flat = flatten(params);
  return html`<${Section} title="Params" count=${flat.length}>
    ${
      flat.length
        ? html`<${Facts} pairs=${flat.map(([name, value]) => [name, html`<code>${param(value)}</code>`])} />`
        : html`<p class="muted">None were given: halving.init(project, {"lr": 0.1}) records them.</p>`
    }
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
export function Code({ run, id }) {
  const git = run.provenance.git;
  const lockfile = run.provenance.lockfile;
  let tree = git?.dirty ? "changed files" : "clean";
  if (git?.dirty === null) tree = `unknown: git could not say (${git.error})`;
  const importedBy = run.parent.imported?.tool;
  const noCommit = importedBy ? `not recorded by ${importedBy}` : "not in a git checkout";
  const leftOut = (git?.left_out ?? [])
    .map((/** @type {any} */ file) => `${file.path} (${size(file.bytes)})`)
    .join(", ");
  return html`<${Section} title="Code">
    <${Facts} pairs=${[
      [
        "commit",
        git?.commit
          ? html`<${Copy} text=${git.commit} shortText=${git.commit.slice(0, 12)} label="the commit" />`
          : noCommit,
      ],
      ["branch", git?.branch],
      ["remote", git?.remote],
      ["working tree", git && tree],
      ["left out", leftOut],
      ["lockfile", lockfile && html`${lockfile.name} <code>${shortDigest(lockfile.sha256)}</code>`],
      [
        "command",
        run.provenance.command?.length ? html`<code>${run.provenance.command.join(" ")}</code>` : null,
      ],
    ]} />
    ${git?.patch && html`<${Patch} id=${id} digest=${git.patch} />`}
  <//>`;
}

/**
 * What was changed over the commit; fetched when it is opened.
 * @param {{id: string, digest: string}} props
 */
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
  return html`<details class="after" onToggle=${open}><summary>The changes over the commit</summary>
    <pre class="patch" tabindex="0">
      ${text.value.split("\n").map((line) => html`<span class=${lineKind(line)}>${line}${"\n"}</span>`)}</pre>
      </details>`;
}

/** @param {string} line */
function lineKind(line) {
  if (line.startsWith("+++") || line.startsWith("---") || line.startsWith("diff ")) return "file";
  if (line.startsWith("@@")) return "hunk";
  return { "+": "added", "-": "removed" }[line.charAt(0)] ?? "";
}

/** @param {{provenance: any}} props */
export function Environment({ provenance }) {
  const hardware = provenance.hardware ?? {};
  const packages = Object.entries(provenance.packages ?? {});
  return html`<${Section} title="Environment">
    <${Facts} pairs=${[
      ["python", [provenance.python?.implementation, provenance.python?.version].filter(Boolean).join(" ")],
      ["image", provenance.image],
      ["host", hardware.host],
      ["platform", hardware.platform],
      ["CPUs", hardware.cpus],
      ["memory", hardware.memory_bytes && size(hardware.memory_bytes)],
      ["GPUs", Object.keys(hardware).length > 0 && (hardware.gpus?.join("; ") || "none")],
    ]} />
    ${
      packages.length > 0 &&
      html`<details class="after"><summary>${counted(packages.length, "package")}</summary>
        <pre tabindex="0">${packages.map(([name, version]) => `${name} ${version}`).join("\n")}</pre>
        </details>`
    }
  <//>`;
}

/** What the catalog says of how an attempt ended, in the words of a run's record. */
const OUTCOMES = /** @type {Record<string, string>} */ ({
  complete: "finished",
  pause: "paused",
  stop: "stopped",
  retry: "crashed",
  fail: "failed",
  requeue: "given back",
  resized: "other resources",
  halved: "out of memory, halved",
  preempted: "preempted",
});

/**
 * Every attempt, and why it ended.
 * @param {{attempts: any[], handedOut?: any[]}} props attempts: those of the record; handedOut: those of the
 *   catalog, which also has those without a record, because their pods did not start; none of a script's run
 */
export function Attempts({ attempts, handedOut = [] }) {
  const recorded = new Map(attempts.map((attempt) => [attempt.number, attempt]));
  const tried = new Map(handedOut.map((attempt) => [attempt.attempt, attempt]));
  const numbers = [...new Set([...recorded.keys(), ...tried.keys()])].sort((a, b) => a - b);
  if (!numbers.length) return null;
  const isTrial = tried.size > 0;
  return html`<${Section} title="Attempts" count=${numbers.length}>
    <div class="scroll" tabindex="0" role="region" aria-label="Attempts">
      <table class="attempts">
        <thead><tr>
          <th scope="col" class="right">#</th><th scope="col">Ended as</th><th scope="col">Started</th>
          <th scope="col" class="right">Duration</th>${isTrial && html`<th scope="col">Ran on</th>`}
          <th scope="col" class="right">Epoch</th><th scope="col" class="right">Points</th>
          <th scope="col">Lost</th>
        </tr></thead>
        <tbody>
          ${numbers.map(
            (number) =>
              html`<${Attempt} key=${number} number=${number} record=${recorded.get(
                number,
              )} tried=${tried.get(number)} isTrial=${isTrial} />`,
          )}</tbody>
      </table>
    </div>
  <//>`;
}

/**
 * @param {{number: number, record: any, tried: any, isTrial: boolean}} props record, tried: undefined where
 *   it is not known there
 */
function Attempt({ number, record, tried, isTrial }) {
  const lost = [
    record?.dropped_points && `${counted(record.dropped_points, "point")} dropped`,
    record?.rejected_values && `${counted(record.rejected_values, "value")} rejected`,
  ].filter(Boolean);
  const status = tried?.outcome ? (OUTCOMES[tried.outcome] ?? tried.outcome) : (record?.status ?? "waiting");
  const seconds =
    record?.seconds ?? (tried?.ended && (Date.parse(tried.ended) - Date.parse(tried.began)) / 1000);
  return html`
    <tr class=${tried?.reason ? "has-reason" : ""}>
      <th scope="row" class="right">${number}</th><td><${Badge} status=${status} /></td>
      <td><${Timestamp} time=${record?.started ?? tried.began} /></td><td class="right">${duration(seconds)}
      </td>
      ${
        isTrial &&
        html`<td title=${tried?.worker ? `Worker ${tried.worker}` : undefined}>${tried ? ranOn(tried) : NONE}
          </td>`
      }
      <td class="right">${record?.epoch ?? NONE}</td><td class="right">${record?.points ?? NONE}</td>
      <td class=${lost.length ? "" : "muted"}>${lost.join(", ") || (record ? "nothing" : NONE)}</td>
    </tr>
    ${
      tried?.reason &&
      html`<tr class="reason">
        <td colspan="8">
          <div><p>${tried.reason}</p>
            ${
              tried.error.trim() !== tried.reason &&
              html`<${Whole} text=${tried.error} summary=${`All that attempt ${number} said`} />`
            }</div></td>
                </tr>`
    }
  `;
}

/** @param {{ranks: number, nodes: number, gpus: number}} tried */
function ranOn({ ranks, nodes, gpus }) {
  return [counted(ranks, "rank"), counted(nodes, "node"), gpus && counted(gpus, "GPU")]
    .filter(Boolean)
    .join(", ");
}

/**
 * A long text of an error, such as the stacks of all ranks, behind its title.
 * @param {{text: string, summary: string}} props
 */
export function Whole({ text, summary }) {
  return html`<details>
    <summary>${summary} <span class="muted">${counted(text.trim().split("\n").length, "line")}</span>
    </summary><pre class="patch stack-text" tabindex="0">${text.trim()}</pre></details>`;
}

/** @param {{run: any}} props */
export function Files({ run }) {
  const files = run.files;
  return html`<${Section} title="Files"
    aside=${html`<${Copy} text=${`halving show ${run.project}/${run.run}`} />`}>
    <${Facts} pairs=${[
      ["record", html`<code>${files.record}</code>`],
      ["points", files.full && html`<code>${files.full}</code>`],
      ["rollups", files.rollup && html`<code>${files.rollup}</code>`],
      [
        "segments",
        files.segments.length
          ? html`${files.segments.length} not compacted yet <${Copy} text="halving compact" />`
          : null,
      ],
    ]} />
  <//>`;
}
