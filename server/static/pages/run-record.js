/** What a run's record says of it: params, code, environment, attempts, and where its files are. */
import { useSignal } from "@preact/signals";
import { Badge, Copy, Facts, Moment, Section } from "../components/bits.js";
import { request } from "../lib/api.js";
import { NONE, counted, duration, shortDigest, shown, size } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @param {{params: Record<string, unknown>}} props */
export function Params({ params }) {
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
export function Code({ run, id }) {
  const git = run.provenance.git;
  const lockfile = run.provenance.lockfile;
  const tree = git?.dirty === null ? `unknown: git could not say (${git.error})` : git?.dirty ? "changed files" : "clean";
  const leftOut = (git?.left_out ?? []).map((/** @type {any} */ file) => `${file.path} (${size(file.bytes)})`).join(", ");
  return html`<${Section} title="Code">
    <${Facts} pairs=${[
      ["commit", git?.commit ? html`<${Copy} text=${git.commit} shown=${git.commit.slice(0, 12)} label="the commit" />` : run.parent.imported ? `not recorded by ${run.parent.imported.tool}` : "not in a git checkout"],
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
    ${packages.length > 0 && html`<details class="after"><summary>${counted(packages.length, "package")}</summary><pre tabindex="0">${packages.map(([name, version]) => `${name} ${version}`).join("\n")}</pre></details>`}
  <//>`;
}

/** @param {{attempts: any[]}} props */
export function Attempts({ attempts }) {
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

/** @param {{run: any}} props */
export function Files({ run }) {
  const files = run.files;
  return html`<${Section} title="Files" aside=${html`<${Copy} text=${`halving show ${run.project}/${run.run}`} />`}>
    <${Facts} pairs=${[
      ["record", html`<code>${files.record}</code>`],
      ["points", files.full && html`<code>${files.full}</code>`],
      ["rollups", files.rollup && html`<code>${files.rollup}</code>`],
      ["segments", files.segments.length ? html`${files.segments.length} not compacted yet <${Copy} text="halving compact" />` : null],
    ]} />
  <//>`;
}
