/** What a run has put into the store: media and artifacts. */
import { useSignal } from "@preact/signals";
import { Section } from "../components/bits.js";
import { Audio, Histogram, Page, shownAs, Table, Text, Video } from "../components/medium.js";
import { shortDigest, size } from "../lib/format.js";
import { html } from "../lib/html.js";

const FIRST_MEDIA = 12;
const ABOVE = new Set(["table", "text", "audio", "video", "html"]); // what is shown above its link

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
        (medium) => html`<li key=${`${medium.key}-${medium.step}-${medium.digest}`} class=${medium.kind}>
          <${Above} id=${id} medium=${medium} />
          <a href=${blob(id, medium.digest)} target="_blank">
            <${Preview} id=${id} medium=${medium} />
            <span>${medium.key} <span class="muted">step ${medium.step}, ${size(medium.bytes)}</span></span>
          </a>
          ${medium.caption && html`<span class="muted">${medium.caption}</span>`}
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

/** What is used or read above a medium's link. @param {{id: string, medium: any}} props */
function Above({ id, medium }) {
  const url = blob(id, medium.digest);
  const name = medium.caption ?? `${medium.key} at step ${medium.step}`;
  const player = shownAs(medium);
  if (medium.kind === "table") return html`<${Table} url=${url} name=${name} />`;
  if (medium.kind === "text") return html`<${Text} url=${url} />`;
  if (player === "audio") return html`<${Audio} url=${url} name=${name} />`;
  if (player === "video") return html`<${Video} url=${url} name=${name} />`;
  if (player === "html") return html`<${Page} url=${url} name=${name} />`;
  return null;
}

/** What a link to a medium shows of it. @param {{id: string, medium: any}} props */
function Preview({ id, medium }) {
  const url = blob(id, medium.digest);
  const name = `${medium.key} at step ${medium.step}`;
  if (shownAs(medium) === "picture")
    return html`<img src=${url} alt=${medium.caption ?? name} loading="lazy" width=${medium.width}
      height=${medium.height} />`;
  if (medium.kind === "histogram") return html`<${Histogram} url=${url} name=${name} />`;
  return ABOVE.has(medium.kind) ? null : html`<span class="kind">${medium.kind}</span>`;
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
            (/** @type {any} */ artifact) =>
              html`<tr key=${artifact.name}>
                <th scope="row">
                  <a href=${`${blob(id, artifact.digest)}&artifact=${encodeURIComponent(artifact.name)}`}
                    download=${artifact.name.split("/").at(-1)}>${artifact.name}</a></th>
                      <td class="right">${size(artifact.bytes)}</td>
                      <td class="mono muted" title=${artifact.digest}>${shortDigest(artifact.digest)}</td></tr>`,
          )}</tbody>
      </table>
    </div>
  <//>`;
}
