/** The filter: text of its language, completed as it is written, its error underlined where it is. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { sentence } from "../lib/format.js";
import { html } from "../lib/html.js";
import { useShortcuts } from "../lib/keyboard.js";
import { suggestions } from "./names.js";
import * as runs from "./runs.js";
import * as view from "./view.js";

export function FilterLine() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  const text = useSignal(view.filter.value);
  const shift = useSignal(0);
  const caret = useSignal(0);
  const open = useSignal(false);
  const chosen = useSignal(-1);
  useLayoutEffect(() => {
    text.value = view.filter.value;
  }, [view.filter.value]);
  useShortcuts([
    { keys: "/", does: "write a filter", run: () => (input.current?.focus(), input.current?.select()) },
  ]);

  const apply = () => {
    open.value = false;
    if (text.peek().trim() !== view.filter.peek().trim()) view.setFilter(text.peek());
  };
  const { word, completions } = open.value
    ? suggestions(text.value.slice(0, caret.value))
    : { word: "", completions: [] };
  const take = (/** @type {string} */ name) => {
    const start = caret.peek() - word.length;
    text.value = `${text.peek().slice(0, start)}${name} ${text.peek().slice(caret.peek()).trimStart()}`;
    caret.value = start + name.length + 1;
    chosen.value = -1;
    open.value = false;
    requestAnimationFrame(() => input.current?.setSelectionRange(caret.peek(), caret.peek()));
  };
  const typed = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    text.value = field.value;
    caret.value = field.selectionStart ?? field.value.length;
    open.value = true;
    chosen.value = -1;
  };
  const keys = (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Escape") {
      if (completions.length) open.value = false;
      else {
        text.value = view.filter.peek();
        input.current?.blur();
      }
    } else if (completions.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      event.preventDefault();
      let step = 1;
      if (event.key === "ArrowUp") step = chosen.value < 0 ? 0 : -1;
      chosen.value = (chosen.value + step + completions.length) % completions.length;
    } else if (completions.length && (event.key === "Tab" || (event.key === "Enter" && chosen.value >= 0))) {
      event.preventDefault();
      take(completions[Math.max(0, chosen.value)]?.text ?? "");
    }
  };
  const failure = runs.error.value;
  const draft = text.value.trim() !== view.filter.value.trim();
  const wrong = failure?.column && !draft ? failure.column : 0;
  return html`
    <form class="filter" role="search"
      onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), apply())}>
      <div class="filter-box">
        <input ref=${input} type="text" role="combobox" spellcheck="false" autocomplete="off"
          autocapitalize="off" aria-label="Filter of runs"
          placeholder="params.lr < 0.01 order by metrics.val_loss"
          value=${text.value} aria-invalid=${wrong > 0} aria-describedby=${
            failure ? "filter-error" : undefined
          }
          aria-autocomplete="list" aria-expanded=${completions.length > 0} aria-controls="filter-names"
          aria-activedescendant=${chosen.value >= 0 ? `filter-name-${chosen.value}` : undefined}
          onInput=${typed} onKeyDown=${keys} onBlur=${() => (open.value = false)}
          onScroll=${(/** @type {Event} */ event) =>
            (shift.value = /** @type {HTMLElement} */ (event.target).scrollLeft)} />
        ${wrong > 0 && html`<${Underline} text=${text.value} column=${wrong} shift=${shift.value} />`}
        <ul id="filter-names" class="names" role="listbox" aria-label="Names" hidden=${!completions.length}>
          ${completions.map(
            (completion, index) =>
              html`<li key=${completion.text} id=${`filter-name-${index}`} role="option"
                aria-selected=${index === chosen.value}
              onMouseDown=${(/** @type {Event} */ event) => (event.preventDefault(), take(completion.text))}>
              <span>${completion.text}</span><small>${completion.kind}</small></li>`,
          )}
        </ul>
      </div>
      ${draft && html`<p class="muted hint">Enter applies it, Escape takes it back.</p>`}
      ${failure && html`<p id="filter-error" class="filter-error" role="alert">${said(failure)}</p>`}
    </form>
  `;
}

/** @param {import("../lib/api.js").ApiError} failure */
function said(failure) {
  if (!failure.passing) return failure.message;
  const consequence = runs.total.value === null ? "Retrying." : "Showing the runs as they were, retrying.";
  return `${sentence(failure.message)} ${consequence}`;
}

/**
 * The word at a column underlined; it lies over the input and shows nothing else.
 * @param {{text: string, column: number, shift: number}} props
 */
function Underline({ text, column, shift }) {
  const before = text.slice(0, column - 1);
  const word = /^(\S+|\s+)/.exec(text.slice(column - 1))?.[0] ?? " ";
  return html`<span class="filter-under" aria-hidden="true">
    <span style=${{ marginLeft: `${-shift}px` }}>${before}<u>${word.replaceAll(" ", "\u00a0")}</u></span>
    </span>`;
}
