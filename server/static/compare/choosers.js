/** What the table shows: its columns, and what its runs are grouped by. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { counted } from "../lib/format.js";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/url-state.js";
import { matcher } from "./layout.js";
import { allColumns, groupColumns } from "./names.js";
import * as view from "./view.js";

const MAX_LISTED = 60;

/** A list of names to choose columns from; of many the first that the search finds. */
export function Columns() {
  const open = useSignal(false);
  const search = useSignal("");
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useLayoutEffect(() => {
    if (!open.value) return undefined;
    box.current?.querySelector("input")?.focus();
    const outside = (/** @type {Event} */ event) => {
      if (!box.current?.contains(/** @type {Node} */ (event.target))) open.value = false;
    };
    const escaped = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      open.value = false;
      box.current?.querySelector("button")?.focus(); // what had the focus is gone with the list
    };
    document.addEventListener("mousedown", outside);
    document.addEventListener("keydown", escaped);
    return () => {
      document.removeEventListener("mousedown", outside);
      document.removeEventListener("keydown", escaped);
    };
  }, [open.value]);
  const chosen = view.columns.value;
  const toggle = (/** @type {string} */ column) =>
    setQuery({
      columns: (chosen.includes(column)
        ? chosen.filter((name) => name !== column)
        : [...chosen, column]
      ).join(","),
    });
  const matches = matcher(search.value);
  const matching = open.value ? allColumns.value.filter((option) => matches(option.column)) : [];
  const first = [
    ...matching.filter((option) => chosen.includes(option.column)),
    ...matching.filter((option) => !chosen.includes(option.column)),
  ].slice(0, MAX_LISTED);
  return html`
    <div class="chooser" ref=${box}>
      <button type="button" aria-expanded=${open.value} aria-haspopup="dialog"
        onClick=${() => (open.value = !open.value)}>Columns</button>
      ${
        open.value &&
        html`<div class="popup" role="dialog" aria-label="Columns">
        <input type="search" placeholder="Find" aria-label="Find columns"
          value=${search.value} onInput=${(/** @type {Event} */ event) =>
            (search.value = /** @type {HTMLInputElement} */ (event.target).value)} />
        <ul>
          ${first.map(
            (option) =>
              html`<li key=${option.column}>
                <label>
                  <input type="checkbox"
                    checked=${chosen.includes(option.column)} onChange=${() => toggle(option.column)} />
            <span>${option.column}</span></label></li>`,
          )}
        </ul>
        ${
          matching.length > first.length &&
          html`<p class="muted">${counted(matching.length - first.length, "more name")}: search for them</p>`
        }
      </div>`
      }
    </div>
  `;
}

/** What runs can be put together by. */
export function GroupBy() {
  const usable = groupColumns.value;
  const value = view.group.value;
  const options =
    usable.some((option) => option.column === value) || !value
      ? usable
      : [{ column: value, kind: "", type: "" }, ...usable];
  return html`<label class="tool"><span class="sr-only">Group by</span>
    <select class="group-by"
      value=${value} onChange=${(/** @type {Event} */ event) =>
        setQuery({ group: /** @type {HTMLSelectElement} */ (event.target).value })}>
      <option value="">no groups</option>
      ${options.slice(0, 500).map(
        (option) =>
          html`<option key=${option.column} value=${option.column} selected=${option.column === value}>
            by ${option.column}</option>`,
      )}
    </select>
  </label>`;
}
