/**
 * The rung ladder: how many trials reached each rung of a bracket, and what became of them there. A table
 * whose bars are its numbers.
 */
import { number } from "../lib/format.js";
import { html } from "../lib/html.js";

/**
 * @typedef {{bracket: number, rung: number, epochs: number, reached: number, promoted: number, paused:
 *   number, stopped: number, completed: number, failed: number, best: number | null}} Rung
 */
/** @typedef {"promoted" | "paused" | "stopped" | "completed" | "failed"} Fate */

const FATES = /** @type {readonly Fate[]} */ (["promoted", "completed", "paused", "stopped", "failed"]);

/** @type {Record<Fate, string>} */
const MEANING = {
  promoted: "went on to the next rung",
  completed: "trained to the end",
  paused: "waits here with a checkpoint",
  stopped: "ended here",
  failed: "failed on the way here",
};

/**
 * @param {{rungs: Rung[], running: Map<string, number>, searching: boolean}} props running: trials on their
 *   way to `BRACKET/RUNG` now
 */
export function Ladder({ rungs, running, searching }) {
  const highest = Math.max(1, ...rungs.map((rung) => rung.reached));
  const brackets = [...new Set(rungs.map((rung) => rung.bracket))];
  const lines = searching
    ? rungs
    : rungs.map((rung) => ({ ...rung, stopped: rung.stopped + rung.paused, paused: 0 }));
  const fates = FATES.filter((fate) => lines.some((rung) => rung[fate]));
  return html`
    <ul class="legend" aria-label="What the colours mean">
      ${fates.map(
        (fate) =>
          html`<li key=${fate}><i class=${`part ${fate}`} />${fate} <span class="muted">${MEANING[fate]}
            </span></li>`,
      )}
    </ul>
    <div class="scroll" tabindex="0" role="region" aria-label="Rung ladder">
      <table class="ladder">
        <thead>
          <tr>
            ${brackets.length > 1 && html`<th scope="col">Bracket</th>`}
            <th scope="col" class="right">Epochs</th><th scope="col" class="wide">Trials that reached it</th>
            ${searching && html`<th scope="col" class="right">Training</th>`}
            <th scope="col" class="right">Best</th>
          </tr>
        </thead>
        <tbody>
          ${lines.map(
            (rung, index) =>
              html`<tr
                key=${`${rung.bracket}/${rung.rung}`} class=${rung.rung === 0 && index ? "next-bracket" : ""}>
              ${brackets.length > 1 && html`<td class="muted">${rung.rung === 0 ? rung.bracket : ""}</td>`}
              <th scope="row" class="right">${rung.epochs}</th>
              <td><${Bar} rung=${rung} highest=${highest} /></td>
              ${
                searching && html`<td class="right">${running.get(`${rung.bracket}/${rung.rung}`) ?? ""}</td>`
              }
              <td class="right">${number(rung.best)}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  `;
}

/** @param {{rung: Rung, highest: number}} props */
function Bar({ rung, highest }) {
  const fates = FATES.filter((fate) => rung[fate]);
  const words = fates.map((fate) => `${rung[fate]} ${fate}`).join(", ");
  return html`<div class="rung">
    <div class="rung-bar" style=${{ width: `${(100 * rung.reached) / highest}%` }} aria-hidden="true">
      ${fates.map(
        (fate) => html`<i key=${fate} class=${`part ${fate}`} style=${{ flexGrow: rung[fate] }} />`,
      )}
    </div>
    <span>${rung.reached || html`<span class="muted">none yet</span>`}
      ${words && html` <span class="muted">${words}</span>`}</span>
  </div>`;
}
