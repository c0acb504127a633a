/** Views that are saved under a name for a project: a menu of them, and saving the one that is shown. */
import { computed, signal, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { Confirm, Dialog } from "../components/dialog.js";
import { Problem } from "../components/problem.js";
import { LinkDialog } from "../components/share-link.js";
import { ApiError, get, may, send } from "../lib/api.js";
import { ago } from "../lib/format.js";
import { html } from "../lib/html.js";
import { navigate } from "../lib/router.js";
import { query, readable } from "../lib/url-state.js";
import * as runs from "./runs.js";

/** What Compare's address may have; resources/views/view_query.py has the same names. */
export const NAMES = [
  ...["filter", "columns", "group", "metrics", "show", "hide", "top", "tab", "x", "sysx", "logx", "logy"],
  ...["smooth", "band", "zoom", "zoom-time", "zoom-relative", "zoom-y", "mark", "fold", "color", "axes", "sx"],
  ...["sy", "media-step", "media-size", "all"],
];
const MANY = 8; // views from which on they can be searched

/** @typedef {{project: string, name: string, query: string, revision: string, by: string, at: string}} View */

/** The view that was opened or saved last: what is saved under its name replaces it, if nobody else has. */
const opened = signal(/** @type {View | null} */ (null));

/** The shown view as it is saved: without what others have put into the address. */
const shownQuery = computed(() => {
  const kept = new URLSearchParams();
  for (const [name, value] of query.value) if (NAMES.includes(name) && value) kept.append(name, value);
  return readable(kept);
});

/** The projects of the shown runs, those that most of them have first. */
const projects = computed(() => {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const id of runs.shownIds.value) {
    const project = id.slice(0, id.indexOf("/"));
    counts.set(project, (counts.get(project) ?? 0) + 1);
  }
  return [...counts].sort((first, second) => second[1] - first[1]).map(([name]) => name);
});

const addressOf = (/** @type {View} */ view) =>
  `/views/${encodeURIComponent(view.project)}/${encodeURIComponent(view.name)}`;

/**
 * The menu, and the dialogs that it leads to.
 * @param {{open: import("@preact/signals").Signal<boolean>, button: () => HTMLElement | null}} props open:
 *   whether the menu is; button: what opened it, which gets the focus back
 */
export function SavedViews({ open, button }) {
  const dialog = useSignal(/** @type {"" | "save" | "link" | View} */ (""));
  /** @param {"save" | "link" | View} next */
  const ask = (next) => {
    open.value = false;
    dialog.value = next;
  };
  const close = () => {
    dialog.value = "";
    button()?.focus();
  };
  const dialogNow = dialog.value;
  return html`
    ${
      open.value &&
      html`<div class="popup views" role="dialog" aria-label="Views">
        <${Menu} done=${() => (open.value = false)} remove=${ask} />
        ${
          may("write") &&
          html`<div class="actions">
            <button type="button" onClick=${() => ask("save")}>Save view…</button>
            <button type="button" onClick=${() => ask("link")}>View-only link…</button>
          </div>`
        }
      </div>`
    }
    ${dialogNow === "save" && html`<${SaveDialog} onClose=${close} />`}
    ${
      dialogNow === "link" &&
      html`<${LinkDialog} projects=${projects.value} onClose=${close}
        offers=${[{ kind: "view", target: shownQuery.value, words: "this view" }]} />`
    }
    ${
      typeof dialogNow === "object" &&
      html`<${Confirm} title=${`Delete ${dialogNow.name}?`} does="Delete" danger=${true} onClose=${close}
        text=${`The view goes for all who see ${dialogNow.project}. Links that were made of it go on until they end.`}
        act=${() => send(`${addressOf(dialogNow)}?revision=${dialogNow.revision}`, undefined, { method: "DELETE" })} />`
    }
  `;
}

/** @param {{done: () => void, remove: (view: View) => void}} props */
function Menu({ done, remove }) {
  const views = useSignal(/** @type {View[] | null} */ (null));
  const search = useSignal("");
  const failure = useSignal("");
  const list = useRef(/** @type {HTMLDivElement | null} */ (null));
  const look = async () => {
    try {
      views.value = (await get("/views")).views;
    } catch (error) {
      failure.value = /** @type {Error} */ (error).message;
    }
  };
  useEffect(() => void look(), []);
  useLayoutEffect(() => {
    if (views.value) /** @type {HTMLElement | null} */ (list.current?.querySelector("input, button"))?.focus();
  }, [views.value === null]);
  /** @param {View} view */
  const show = (view) => {
    opened.value = view;
    navigate(`/?${view.query}`);
    done();
  };
  /** @param {KeyboardEvent} event */
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const buttons = [...(list.current?.querySelectorAll(".view-name") ?? [])];
    if (!step || !buttons.length) return;
    event.preventDefault();
    const at = buttons.indexOf(/** @type {Element} */ (document.activeElement));
    const next = at < 0 && step < 0 ? buttons.length - 1 : (at + step + buttons.length) % buttons.length;
    /** @type {HTMLElement | undefined} */ (buttons[next])?.focus();
  };
  const sought = search.value.trim().toLowerCase();
  const matching = (views.value ?? []).filter((view) => `${view.project} ${view.name}`.toLowerCase().includes(sought));
  const projectNames = [...new Set(ordered(matching).map((view) => view.project))];
  return html`<div ref=${list} onKeyDown=${keys}>
    ${
      (views.value?.length ?? 0) > MANY &&
      html`<input type="search" placeholder="Find" aria-label="Find views" value=${search.value}
        onInput=${(/** @type {Event} */ event) =>
          (search.value = /** @type {HTMLInputElement} */ (event.target).value)} />`
    }
    <${Problem} text=${failure.value} />
    ${views.value?.length === 0 && html`<p class="muted">No views are saved yet.</p>`}
    ${projectNames.map(
      (project) =>
        html`<section key=${project} aria-label=${`Views of ${project}`}><h2>${project}</h2><ul>
          ${matching
            .filter((view) => view.project === project)
            .map(
            (view) =>
              html`<li key=${view.name}>
                <button type="button" class="quiet view-name" title=${`${view.query || "all runs"}\nby ${view.by}`}
                  aria-current=${view.query === shownQuery.value ? "true" : undefined}
                  onClick=${() => show(view)}>${view.name}</button>
                ${
                  may("write") &&
                  html`<button type="button" class="icon" aria-label=${`Delete the view ${view.name}`}
                    onClick=${() => remove(view)}>×</button>`
                }
              </li>`,
          )}</ul></section>`,
    )}
  </div>`;
}

/** Views of the shown runs' projects first. @param {View[]} views */
function ordered(views) {
  const own = new Set(projects.value);
  return [...views.filter((view) => own.has(view.project)), ...views.filter((view) => !own.has(view.project))];
}

/** @param {{onClose: () => void}} props */
function SaveDialog({ onClose }) {
  const name = useSignal(opened.value?.name ?? "");
  const project = useSignal(opened.value?.project ?? projects.value[0] ?? "");
  const busy = useSignal(false);
  const failure = useSignal("");
  /** The view that stands in the way. */
  const other = useSignal(/** @type {View | null} */ (null));
  const before = opened.value;
  const replaces = before !== null && before.name === name.value.trim() && before.project === project.value.trim();
  /** @param {string | null} revision */
  const save = async (revision) => {
    busy.value = true;
    failure.value = "";
    other.value = null;
    const view = { project: project.value.trim(), name: name.value.trim() };
    const address = addressOf(/** @type {View} */ (view));
    try {
      opened.value = await send(address, { query: shownQuery.value, revision }, { method: "PUT" });
      onClose();
    } catch (error) {
      failure.value = /** @type {Error} */ (error).message;
      if (error instanceof ApiError && error.status === 409) other.value = await get(address).catch(() => null);
    } finally {
      busy.value = false;
    }
  };
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    void save(replaces ? before.revision : null);
  };
  return html`<${Dialog} title="Save view" onClose=${onClose}>
    <form onSubmit=${submit}>
      <p>The filter, order, columns, tab and zoom as they are now, for all who see the project.</p>
      <label class="field">Name
        <input required maxlength="100" autocomplete="off" value=${name.value}
          onInput=${(/** @type {Event} */ event) => (name.value = valueOf(event))} /></label>
      <label class="field">Project
        <input required maxlength="128" list="view-projects" autocomplete="off" value=${project.value}
          onInput=${(/** @type {Event} */ event) => (project.value = valueOf(event))} /></label>
      <datalist id="view-projects">${projects.value.map((each) => html`<option key=${each} value=${each} />`)}</datalist>
      ${replaces && html`<p class="muted">It replaces the one that you have opened.</p>`}
      ${
        other.value
          ? html`<${Problem} text=${`${other.value.by} has saved a view of this name, ${ago(other.value.at)}.`} />
            <div><button type="button" class="danger" disabled=${busy.value}
              onClick=${() => save(/** @type {View} */ (other.value).revision)}>Replace it</button></div>`
          : html`<${Problem} text=${failure.value} />`
      }
      <div class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class="primary" disabled=${busy.value}>${replaces ? "Replace" : "Save"}</button>
      </div>
    </form>
  <//>`;
}

/** @param {Event} event */
const valueOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;
