/**
 * What a run logged that can be looked at: a text as it is, a histogram as bars, a table's first rows, sound
 * and videos in players, HTML in a sandbox. Each is fetched when it is looked at.
 */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { here } from "../lib/base.js";
import { counted, number, display } from "../lib/format.js";
import { html } from "../lib/html.js";
import { parsed } from "../lib/json.js";

const MAX_LETTERS = 20_000;

/**
 * The text behind an address, "" until it is there: asked for when the box is seen, since a hundred runs may
 * have a long one each.
 * @param {string} url as the API gives it
 * @param {{current: HTMLElement | null}} box
 */
function useSeenText(url, box) {
  const text = useSignal("");
  const failed = useSignal("");
  useEffect(() => {
    const stop = new AbortController();
    const observer = new IntersectionObserver(async ([entry]) => {
      if (!entry?.isIntersecting) return;
      observer.disconnect();
      try {
        const response = await fetch(here(url), { signal: stop.signal });
        if (response.ok) text.value = await response.text();
        else failed.value = `The server answered ${response.status}.`;
      } catch {
        if (!stop.signal.aborted) failed.value = "It could not be read.";
      }
    });
    if (box.current) observer.observe(box.current);
    return () => {
      observer.disconnect();
      stop.abort();
    };
  }, [url]);
  return { text: text.value, failed: failed.value };
}

/** @param {{url: string}} props */
export function Text({ url }) {
  const box = useRef(/** @type {HTMLPreElement | null} */ (null));
  const { text, failed } = useSeenText(url, box);
  return html`<pre class="media-text" tabindex="0" ref=${box}>${failed || text.slice(0, MAX_LETTERS) || "…"}
    </pre>`;
}

/**
 * @param {{kind: string, media_type?: string}} medium
 * @returns {"picture" | "audio" | "video" | "html" | null} how a browser itself shows it; null: not at all
 */
export function shownAs({ kind, media_type = "" }) {
  // A video may be an animated GIF.
  if (media_type.startsWith("image/") || kind === "image") return "picture";
  return kind === "audio" || kind === "video" || kind === "html" ? kind : null;
}

/** @param {{url: string, name: string}} props */
export function Audio({ url, name }) {
  return html`<audio class="media-audio" controls preload="none" src=${url} aria-label=${name}></audio>`;
}

/** @param {{url: string, name: string}} props */
export function Video({ url, name }) {
  return html`<video class="media-video" controls preload="metadata" playsinline src=${url}
    aria-label=${name}></video>`;
}

/**
 * HTML in a sandbox: its scripts run, and reach neither this page, nor the server, nor any network. The
 * answer's own headers say the same, for who opens the address by itself.
 * @param {{url: string, name: string}} props url: of its bytes
 */
export function Page({ url, name }) {
  return html`<iframe class="media-page" title=${name} loading="lazy" src=${pageOf(url)}
      sandbox="allow-scripts" />
    <p class="muted media-parts"><a href=${url}>Download</a></p>`;
}

/** @param {string} url of the bytes */
const pageOf = (url) => url.replace("?", "/page?");

/**
 * Counts between edges, as the SDK stores them.
 * @param {{url: string, name: string}} props name: what it is of, for who does not see it
 */
export function Histogram({ url, name }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const { text, failed } = useSeenText(url, box);
  const read = text ? histogramOf(text) : null;
  const reason = failed || (text ? "It is no histogram." : "…");
  return html`<div class="histogram" ref=${box}>
    ${
      read ? html`<${Bars} histogram=${read} name=${name} />` : html`<span class="muted">${reason}</span>`
    }</div>`;
}

const MAX_ROWS = 100;
const NUMBERS = /^(u?int|float|double|half|decimal)/; // Arrow's types

/** @typedef {string | number | bigint | boolean | null | {picture: string}} Cell */

/**
 * @typedef {{columns: {name: string, type: string}[], rows: Cell[][],
 *   total: number, total_columns: number}} Rows
 */

/**
 * The first rows of a table.
 * @param {{url: string, name: string}} props url: of its bytes
 */
export function Table({ url, name }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const { text, failed } = useSeenText(`${url.replace("?", "/rows?")}&limit=${MAX_ROWS}`, box);
  /** @type {Rows | null} */
  const read = text ? parsed(text) : null;
  return html`<div class="media-table" tabindex="0" role="region" aria-label=${`Rows of ${name}`} ref=${box}>
    ${read ? html`<${Cells} table=${read} />` : html`<span class="muted">${failed || "…"}</span>`}
  </div>
  ${read && html`<p class="muted media-parts">${partsOf(read)} <a href=${url}>Download</a></p>`}`;
}

/** @param {{table: Rows}} props */
export function Cells({ table }) {
  return html`<table>
    <thead>
      <tr>${table.columns.map(
        (column) =>
          html`<th scope="col" class=${NUMBERS.test(column.type) ? "number" : ""} title=${column.type}>
            ${column.name}</th>`,
      )}</tr></thead>
    <tbody>
      ${table.rows.map(
        (row) =>
          html`<tr>
            ${row.map(
              (cell) =>
                html`<td class=${typeof cell === "number" || typeof cell === "bigint" ? "number" : ""}>
                  ${contentOf(cell)}
                  </td>`,
            )}</tr>`,
      )}</tbody>
  </table>`;
}

/** @param {Cell} cell */
function contentOf(cell) {
  // Only pictures inside of the answer: a table's cell must not make the page ask another address.
  if (typeof cell === "object" && cell?.picture?.startsWith("data:image/"))
    return html`<img src=${cell.picture} alt="" />`;
  return typeof cell === "number" && !Number.isInteger(cell) ? number(cell) : display(cell);
}

/** @param {Rows} rows */
export function partsOf({ rows, total, columns, total_columns }) {
  const lines =
    rows.length < total ? `The first ${rows.length} of ${counted(total, "row")}` : counted(total, "row");
  return columns.length < total_columns
    ? `${lines}, ${columns.length} of ${counted(total_columns, "column")}.`
    : `${lines}.`;
}

/** @typedef {{counts: number[], edges: number[], nan?: number, inf?: number, "-inf"?: number}} Counted */

/** @param {string} text @returns {Counted | null} null where it is none */
function histogramOf(text) {
  try {
    const histogram = JSON.parse(text);
    const whole =
      Array.isArray(histogram.counts) &&
      Array.isArray(histogram.edges) &&
      histogram.edges.length === histogram.counts.length + 1 &&
      histogram.counts.length > 0;
    return whole && [...histogram.counts, ...histogram.edges].every((value) => typeof value === "number")
      ? histogram
      : null;
  } catch {
    return null;
  }
}

/**
 * Each bar as wide as its bin, and as high as its count.
 * @param {{histogram: Counted, name: string}} props
 */
export function Bars({ histogram, name }) {
  const { counts, edges } = histogram;
  const [low, high] = [edges[0] ?? 0, edges.at(-1) ?? 1];
  const highest = Math.max(...counts, 1);
  const shareOf = (/** @type {number} */ edge) => (high > low ? (100 * (edge - low)) / (high - low) : 0);
  const total = counts.reduce((sum, count) => sum + count, 0);
  const extent = `${number(total)} values from ${number(low)} to ${number(high)}`;
  const words = `${extent}, at most ${number(highest)} in one of ${counts.length} bins`;
  const apart = /** @type {const} */ (["nan", "inf", "-inf"])
    .filter((kind) => histogram[kind])
    .map((kind) => `${number(histogram[kind])} ${kind}`);
  return html`
    <svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img"
      aria-label=${`Histogram of ${name}: ${words}`}>
      ${counts.map((count, bin) => {
        const left = shareOf(edges[bin] ?? 0);
        const width = high > low ? shareOf(edges[bin + 1] ?? 0) - left : 100;
        return (
          count > 0 &&
          html`<rect
            x=${left} y=${100 - (100 * count) / highest} width=${width} height=${(100 * count) / highest}>
              <title>${`${number(edges[bin])} to ${number(edges[bin + 1])}: ${count}`}</title></rect>`
        );
      })}
    </svg>
    <div class="histogram-ends"><span>${number(low)}</span>
      ${apart.length > 0 && html`<span>${apart.join(", ")}</span>`}<span>${number(high)}</span></div>
  `;
}
