/** What a run logged beside numbers, as it is in the page itself. */
import { Section } from "../components/bits.js";
import { Bars, Cells, partsOf } from "../components/medium.js";
import { size } from "../lib/format.js";
import { html } from "../lib/html.js";

/** @param {{media: any[]}} props */
export function Media({ media }) {
  if (!media.length) return null;
  return html`<${Section} title="Media" count=${media.length}>
    <ul class="media">
      ${media.map(
        (medium) => html`<li key=${`${medium.key} ${medium.step}`} class=${medium.kind}>
          <${Content} medium=${medium} name=${`${medium.key} at step ${medium.step}`} />
          <span>${medium.key} <span class="muted">step ${medium.step}, ${size(medium.bytes)}</span></span>
          ${medium.caption && html`<span class="muted">${medium.caption}</span>`}
        </li>`,
      )}
    </ul>
  <//>`;
}

/** @param {{medium: any, name: string}} props */
function Content({ medium, name }) {
  if (medium.image)
    return html`<img src=${medium.image} alt=${medium.caption ?? name} width=${medium.width}
      height=${medium.height} />`;
  if (medium.histogram)
    return html`<div class="histogram"><${Bars} histogram=${medium.histogram} name=${name} /></div>`;
  if (medium.table)
    return html`<div class="media-table" tabindex="0" role="region" aria-label=${`Rows of ${name}`}>
      <${Cells} table=${medium.table} /></div><p class="muted media-parts">${partsOf(medium.table)}</p>`;
  return html`<pre class="media-text" tabindex="0">${medium.text}${medium.cut ? "…" : ""}</pre>`;
}
