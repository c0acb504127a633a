/** The filter: text of its language, its error underlined where it is. */
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { useShortcuts } from "../lib/keyboard.js";
import * as runs from "./runs.js";
import * as view from "./view.js";

export function FilterLine() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const text = useSignal(view.filter.value);
  const shift = useSignal(0);
  useEffect(() => {
    text.value = view.filter.value;
  }, [view.filter.value]);
  useShortcuts([{ keys: "/", does: "write a filter", run: () => (input.current?.focus(), input.current?.select()) }]);

  const apply = () => {
    if (text.peek().trim() !== view.filter.peek()) view.setFilter(text.peek());
  };
  const failure = runs.error.value;
  const wrong = failure?.column && text.value.trim() === view.filter.value ? failure.column : 0;
  return html`
    <form class="filter" role="search" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), apply())}>
      <div class="filter-box">
        <input ref=${input} type="text" spellcheck="false" autocomplete="off" autocapitalize="off" aria-label="Filter of runs" placeholder="params.lr < 0.01 and status = finished order by metrics.val_loss"
          value=${text.value} aria-invalid=${wrong > 0} aria-describedby=${failure ? "filter-error" : undefined}
          onInput=${(/** @type {Event} */ event) => (text.value = /** @type {HTMLInputElement} */ (event.target).value)}
          onScroll=${(/** @type {Event} */ event) => (shift.value = /** @type {HTMLElement} */ (event.target).scrollLeft)}
          onBlur=${apply} />
        ${wrong > 0 && html`<${Underline} text=${text.value} column=${wrong} shift=${shift.value} />`}
      </div>
      ${failure && html`<p id="filter-error" class="filter-error" role="alert">${failure.message}</p>`}
    </form>
  `;
}

/**
 * The word at a column underlined; it lies over the input and shows nothing else.
 * @param {{text: string, column: number, shift: number}} props
 */
function Underline({ text, column, shift }) {
  const before = text.slice(0, column - 1);
  const word = /^(\S+|\s+)/.exec(text.slice(column - 1))?.[0] ?? " ";
  return html`<span class="filter-under" aria-hidden="true"><span style=${{ marginLeft: `${-shift}px` }}>${before}<u>${word.replaceAll(" ", "\u00a0") || "\u00a0"}</u></span></span>`;
}
