/** Archiving, deleting and restoring a run from its page. */
import { useSignal } from "@preact/signals";
import { Timestamp } from "../components/bits.js";
import { Confirm } from "../components/dialog.js";
import { may } from "../lib/api.js";
import { html } from "../lib/html.js";

const CHANGES = {
  archive: {
    label: "Archive",
    text:
      "It leaves the lists; nothing of it goes away. A filter that names lifecycle finds it, " +
      "and it can be restored at any time.",
  },
  delete: {
    label: "Delete",
    text:
      "It goes into the trash: it can be restored until the days of the retention policy are over, " +
      "and is removed then with its points, records and artifacts.",
  },
  restore: { label: "Restore", text: "It is listed again, as before." },
};

/** The buttons of a run. @param {{run: any, look: () => Promise<void>}} props */
export function Lifecycle({ run, look }) {
  const asking = useSignal(/** @type {keyof typeof CHANGES | ""} */ (""));
  if (!may("write") || run.files === null) return null;
  /** @type {(keyof typeof CHANGES)[]} */
  const offered = run.lifecycle === "active" ? ["archive"] : ["restore"];
  if (run.lifecycle === "active" || run.lifecycle === "archived") offered.push("delete");
  const pending = asking.value && CHANGES[asking.value];
  /** @param {import("../lib/api.js").Send} send */
  const change = async (send) => {
    await send(`/runs/${encodeURIComponent(run.project)}/${encodeURIComponent(run.run)}/${asking.value}`);
    await look();
  };
  return html`
    ${offered.map(
      (does) =>
        html`<button key=${does} type="button" onClick=${() => (asking.value = does)}>${CHANGES[does].label}
          </button>`,
    )}
    ${
      pending &&
      html`<${Confirm} title=${`${pending.label} ${run.run}?`} text=${pending.text} does=${pending.label}
        danger=${asking.value === "delete"} act=${change} onClose=${() => (asking.value = "")} />`
    }
  `;
}

/** What it means that a run is not active. @param {{run: any}} props */
export function LifecycleNotice({ run }) {
  if (!run.lifecycle || run.lifecycle === "active") return null;
  const since = run.lifecycle_since && html` since <${Timestamp} time=${run.lifecycle_since} />`;
  return run.lifecycle === "archived"
    ? html`<p class="notice">Archived${since}: it is listed only where a filter names lifecycle.</p>`
    : html`<p class="notice">In the trash${since}: it can be restored until the days of the retention policy
      are over.</p>`;
}
