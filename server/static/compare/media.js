/** Media: what runs logged besides numbers, side by side at a step. */
import { computed } from "@preact/signals";
import { Audio, Histogram, Page, shownAs, Table, Text, Video } from "../components/medium.js";
import { Problem } from "../components/problem.js";
import { trouble, useWatched } from "../lib/api.js";
import { counted, number } from "../lib/format.js";
import { html } from "../lib/html.js";
import { queryValue, setQuery } from "../lib/url-state.js";
import { RunName } from "./diff.js";

export const MAX_RUNS = 100;

/**
 * @typedef {{run: string, key: string, kind: string, step: number, digest: string, name: string, url: string,
 *   media_type?: string, caption?: string | null}} Medium
 */

const step = queryValue("media-step");

const SIZES = ["small", "medium", "large"];
const sizeParameter = queryValue("media-size");
const size = computed(() => SIZES.find((name) => name === sizeParameter.value) ?? "medium");

/**
 * @param {{runs: string[]}} props ids; the first hundred are looked at
 */
export function Media({ runs }) {
  const compared = runs.slice(0, MAX_RUNS);
  if (!compared.length) return html`<p class="nothing">Show a run to see what it logged.</p>`;
  return html`<${Loaded} key=${compared.join()} runs=${compared} />`;
}

/** @param {{runs: string[]}} props */
function Loaded({ runs }) {
  const watched = useWatched(
    `/media?${new URLSearchParams([...runs.map((run) => ["run", run]), ["limit", "10000"]])}`,
    { every: 5000 },
  );
  /** @type {Medium[] | undefined} */
  const media = watched.data.value?.media;
  if (!media)
    return html`<div class="tab-body" aria-busy=${!watched.error.value}>
    <${Problem} text=${trouble(watched)} /></div>`;
  if (!media.length)
    return html`<p class="nothing">None of the shown runs has logged an image, a table, a
    histogram, a text, sound, a video or HTML.</p>`;
  const steps = [...new Set(media.map((medium) => medium.step))].sort((left, right) => left - right);
  const last = steps.at(-1) ?? 0;
  const currentStep = step.value === "" ? last : Number(step.value);
  const keys = [...new Set(media.map((medium) => medium.key))].sort();
  return html`
    <div class="tab-body" tabindex="0" role="region" aria-label="Media">
      <${Problem} text=${trouble(watched)} />
      <div class="tab-bar steps">
        ${steps.length > 1 && html`<${Steps} steps=${steps} step=${currentStep} />`}
        <label>
          Size <select
            value=${size.value} onChange=${(/** @type {Event} */ event) =>
              setSize(/** @type {HTMLSelectElement} */ (event.target).value)}>
          ${SIZES.map(
            (name) =>
              html`<option key=${name} value=${name} selected=${name === size.value}>${name}</option>`,
          )}
        </select></label>
      </div>
      ${keys.map(
        (key) =>
          html`<${Grid} key=${key} name=${key} media=${media.filter(
            (medium) => medium.key === key,
          )} step=${currentStep} />`,
      )}
      ${watched.data.value.more && html`<p class="muted">Only the first ${media.length} are shown.</p>`}
    </div>
  `;
}

/** @param {string} next */
const setSize = (next) => setQuery({ "media-size": next === "medium" ? null : next });

/** @param {{steps: number[], step: number}} props */
function Steps({ steps, step }) {
  const index = Math.max(
    0,
    steps.findLastIndex((value) => value <= step),
  );
  /** @param {number} next */
  const go = (next) => setQuery({ "media-step": next >= steps.length - 1 ? null : (steps[next] ?? null) });
  return html`<label for="media-step">Step</label>
    <input id="media-step" type="range" min="0"
      max=${steps.length - 1} value=${index} aria-valuetext=${`step ${steps[index]}`}
      onInput=${(/** @type {Event} */ event) =>
        go(Number(/** @type {HTMLInputElement} */ (event.target).value))} />
    <output>${number(steps[index])}
    </output> <span class="muted">${counted(steps.length, "step")}; of each run the newest up to it</span>`;
}

/**
 * What each run had under a key at the step, or last before it.
 * @param {Medium[]} media
 * @param {number} lastStep
 */
export function newestOf(media, lastStep) {
  /** @type {Map<string, Medium>} */
  const newest = new Map();
  for (const medium of media) {
    const before = newest.get(medium.run);
    if (medium.step <= lastStep && (!before || medium.step >= before.step)) newest.set(medium.run, medium);
  }
  return [...newest.values()];
}

/** @param {{name: string, media: Medium[], step: number}} props */
function Grid({ name, media, step }) {
  const visible = newestOf(media, step);
  return html`<section class="media-key" aria-label=${name}>
    <h2>${name} <span class="muted">${counted(visible.length, "run")}</span></h2>
    ${visible.length === 0 && html`<p class="muted">Nothing up to this step.</p>`}
    <div class="media-grid" data-size=${size.value}>
      ${visible.map(
        (medium) => html`<figure key=${medium.run}>
        <${MediumView} medium=${medium} />
        ${medium.caption && html`<span class="muted">${medium.caption}</span>`}
        <figcaption><${RunName} run=${medium.run} /><span class="muted">step ${number(medium.step)}</span>
        </figcaption>
      </figure>`,
      )}
    </div>
  </section>`;
}

/** @param {{medium: Medium}} props */
function MediumView({ medium }) {
  const kind = medium.kind.toLowerCase();
  const name = `${medium.key} of ${medium.run} at step ${medium.step}`;
  const player = shownAs({ ...medium, kind });
  if (player === "picture")
    return html`<a href=${medium.url} target="_blank" rel="noopener">
    <img src=${medium.url} loading="lazy" decoding="async" alt=${name} /></a>`;
  if (player === "audio") return html`<${Audio} key=${medium.digest} url=${medium.url} name=${name} />`;
  if (player === "video") return html`<${Video} key=${medium.digest} url=${medium.url} name=${name} />`;
  if (player === "html") return html`<${Page} key=${medium.digest} url=${medium.url} name=${name} />`;
  if (kind === "text") return html`<${Text} key=${medium.digest} url=${medium.url} />`;
  if (kind === "histogram")
    return html`<${Histogram} key=${medium.digest} url=${medium.url} name=${name} />`;
  if (kind === "table")
    return html`<${Table} key=${medium.digest} url=${medium.url} name=${name} />`;
  return html`<a class="button" href=${medium.url} download=${medium.name}>${medium.kind}: ${medium.name}
    </a>`;
}
