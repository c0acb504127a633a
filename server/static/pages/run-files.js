/** What a run has put into the store: media and artifacts. */
import { useSignal } from "@preact/signals";
import { Section } from "../components/bits.js";
import { Histogram, Table, Text } from "../components/medium.js";
import { shortDigest, size } from "../lib/format.js";
import { html } from "../lib/html.js";

const FIRST_MEDIA = 12;
const LINES = new Set(["table", "text"]); // what is read above its link, since it scrolls

/**
 * @param {string} id
 * @param {string} digest
 */
export const blob = (id, digest) => `/api/v1/blobs/${digest}?run=${encodeURIComponent(id)}`;

/** Where a checkpoint is one file. @param {string} id @param {string} digest */
export const checkpoint = (id, digest) => `/api/v1/checkpoints/${digest}?run=${encodeURIComponent(id)}`;

/** @param {{run: any, id: string}} props */
export function Media({ run, id }) {
  const all = useSignal(false);
  if (!run.media.length) return null;
  const newest = [...run.media].reverse();
  const listed = all.value ? newest : newest.slice(0, FIRST_MEDIA);
  return html`<${Section} title="Media"
    count=${run.media.length} aside=${html`<span class="muted">the newest first</span>`}>
    <ul class="media">
      ${listed.map(
        (each) => html`<li key=${`${each.key}-${each.step}-${each.digest}`} class=${each.kind}>
          ${
            each.kind === "table" &&
            html`<${Table} url=${blob(id, each.digest)} name=${`${each.key} at step ${each.step}`} />`
          }
          ${each.kind === "text" && html`<${Text} url=${blob(id, each.digest)} />`}
          <a href=${blob(id, each.digest)} target="_blank">
            ${
              each.kind === "image"
                ? html`<img
                  src=${blob(id, each.digest)} alt=${
                    each.caption ?? `${each.key} at step ${each.step}`
                  } loading="lazy"
                      width=${each.width} height=${each.height} />`
                : each.kind === "histogram"
                  ? html`<${Histogram} url=${blob(
                      id,
                      each.digest,
                    )} name=${`${each.key} at step ${each.step}`} />`
                  : !LINES.has(each.kind) && html`<span class="kind">${each.kind}</span>`
            }
            <span>${each.key} <span class="muted">step ${each.step}, ${size(each.bytes)}</span></span>
          </a>
        </li>`,
      )}
    </ul>
    ${
      newest.length > listed.length &&
      html`<p class="after">
        <button type="button" onClick=${() => (all.value = true)}>Show all ${newest.length}</button></p>`
    }
  <//>`;
}

/** @param {{run: any, id: string}} props */
export function Artifacts({ run, id }) {
  if (!run.artifacts.length) return null;
  return html`<${Section} title="Artifacts" count=${run.artifacts.length}>
    <div class="scroll" tabindex="0" role="region" aria-label="Artifacts">
      <table>
        <thead><tr><th scope="col">Name</th><th scope="col" class="right">Size</th><th scope="col">Digest</th>
          </tr></thead>
        <tbody>
          ${run.artifacts.map(
            (/** @type {any} */ each) =>
              html`<tr key=${each.name}>
                <th scope="row">
                  <a href=${`${blob(id, each.digest)}&artifact=${encodeURIComponent(each.name)}`}
                    download=${each.name.split("/").at(-1)}>${each.name}</a></th>
                      <td class="right">${size(each.bytes)}</td>
                      <td class="mono muted" title=${each.digest}>${shortDigest(each.digest)}</td></tr>`,
          )}</tbody>
      </table>
    </div>
  <//>`;
}
