/** A button that saves what a page shows as one file, to be sent to somebody. */
import { useSignal } from "@preact/signals";
import { request } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Problem } from "./problem.js";

const KEPT_MS = 60_000; // the browser may still be writing the file

/**
 * @param {{what: () => Record<string, string>, small?: boolean}} props what: the question for the page, when
 *   it is asked; small: a picture in place of the words
 */
export function ShareAsFile({ what, small = false }) {
  const making = useSignal(false);
  const error = useSignal("");
  const share = async () => {
    if (making.value) return;
    making.value = true;
    error.value = "";
    try {
      await save(await request(`/shared-page?${new URLSearchParams(what())}`));
    } catch (failure) {
      error.value = failure instanceof Error ? failure.message : String(failure);
    } finally {
      making.value = false;
    }
  };
  const word = making.value ? "Making the file…" : "Share as a file";
  return html`<button type="button" class=${small ? "icon" : ""} aria-busy=${making.value} onClick=${share}
      aria-label=${small ? word : undefined}
      title=${`${word}: one HTML file with these curves and tables, which opens without a network`}>
      ${small ? html`<${Icon} />` : word}</button>
    <${Problem} text=${error.value} />`;
}

const Icon = () =>
  html`<svg viewBox="0 0 16 16" width="15" height="15" aria-hidden="true">
    <path class="stroke" d="M8 10V2M5 4.5 8 1.5l3 3M4 7.5H2.5v7h11v-7H12" /></svg>`;

/** @param {Response} response */
async function save(response) {
  const name = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  const address = URL.createObjectURL(await response.blob());
  Object.assign(document.createElement("a"), { href: address, download: name ?? "page.html" }).click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
