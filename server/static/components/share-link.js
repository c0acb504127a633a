/** View-only links: made and copied, listed and revoked. */
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, may, send } from "../lib/api.js";
import { here } from "../lib/base.js";
import { counted, sentence, time } from "../lib/format.js";
import { html } from "../lib/html.js";
import { Copy, Timestamp } from "./bits.js";
import { Dialog } from "./dialog.js";
import { Problem } from "./problem.js";

const DAYS = /** @type {const} */ ([1, 7, 30, 90, 365]);
const AT_FIRST = 7;

/**
 * @typedef {{kind: "run" | "view" | "sweep" | "report", target: string, words: string}} Shareable words: what
 *   it is, for people
 * @typedef {{id: string, kind: string, target: string, projects: string[], note: string, by: string,
 *   expires_at: string, last_used_at: string | null, ended: string | null, path?: string | null}} Link
 */

/**
 * The button of a page, for those who may make links.
 * @param {{offers: Shareable[], project?: string}} props offers: what a link can show, the first one at first;
 *   project: whose links are listed
 */
export function ShareLink({ offers, project }) {
  const open = useSignal(false);
  if (!may("write")) return null;
  return html`<button type="button" onClick=${() => (open.value = true)}>View-only link…</button>
    ${
      open.value &&
      html`<${LinkDialog} offers=${offers} project=${project} onClose=${() => (open.value = false)} />`
    }`;
}

/**
 * @param {{offers: Shareable[], project?: string | undefined, projects?: string[], onClose: () => void}} props
 *   projects: of a view, those of the runs that are shown
 */
export function LinkDialog({ offers, project, projects = [], onClose }) {
  const chosen = useSignal(0);
  const days = useSignal(/** @type {number} */ (AT_FIRST));
  const note = useSignal("");
  const shared = useSignal(projects);
  const busy = useSignal(false);
  const failure = useSignal("");
  const made = useSignal(/** @type {Link | null} */ (null));
  const listed = useSignal(/** @type {Link[] | null} */ (null));
  const offer = /** @type {Shareable} */ (offers[chosen.value] ?? offers[0]);
  const look = async () => {
    try {
      const question = project === undefined ? "" : `?project=${encodeURIComponent(project)}`;
      listed.value = (await get(`/links${question}`)).links;
    } catch (error) {
      failure.value = /** @type {Error} */ (error).message;
    }
  };
  useEffect(() => void look(), []);
  /** @param {() => Promise<void>} act */
  const tried = async (act) => {
    busy.value = true;
    failure.value = "";
    try {
      await act();
    } catch (error) {
      failure.value = /** @type {Error} */ (error).message;
    } finally {
      busy.value = false;
    }
  };
  /** @param {Event} event */
  const make = (event) => {
    event.preventDefault();
    void tried(async () => {
      made.value = await send("/links", {
        kind: offer.kind,
        target: offer.target,
        days: days.value,
        note: note.value.trim(),
        ...(offer.kind === "view" ? { projects: shared.value } : {}),
      });
      await look();
    });
  };
  const revoke = (/** @type {string} */ id) =>
    tried(async () => {
      await send(`/links/${encodeURIComponent(id)}`, undefined, { method: "DELETE" });
      if (made.value?.id === id) made.value = null;
      await look();
    });
  const current = (listed.value ?? []).filter((link) => !link.ended);
  return html`
    <${Dialog} title="View-only link" onClose=${onClose}>
      ${
        made.value
          ? html`<${Made} link=${made.value} words=${offer.words} />`
          : html`<form onSubmit=${make}>
            <p>Whoever has the link sees ${offer.words}, without a token, and nothing beside it. ${
              offer.kind === "view" &&
              html`The view stays as it is now; its runs are as they are when it is opened.`
            }</p>
            ${
              offers.length > 1 &&
              html`<label class="field">It shows
                <select value=${chosen.value} onChange=${(/** @type {Event} */ event) =>
                  (chosen.value = Number(valueOf(event)))}>
                  ${offers.map((each, index) => html`<option key=${each.kind} value=${index}>${each.words}</option>`)}
                </select></label>`
            }
            ${offer.kind === "view" && html`<${Projects} all=${projects} chosen=${shared} />`}
            <label class="field">It ends after
              <select value=${days.value}
                onChange=${(/** @type {Event} */ event) => (days.value = Number(valueOf(event)))}>
                ${DAYS.map((each) => html`<option key=${each} value=${each}>${counted(each, "day")}</option>`)}
              </select></label>
            <label class="field">Note, for those who list links
              <input maxlength="500" value=${note.value} placeholder="for whom, and why"
                onInput=${(/** @type {Event} */ event) => (note.value = valueOf(event))} /></label>
            <div class="actions">
              <button type="button" onClick=${onClose}>Cancel</button>
              <button type="submit" class="primary"
                disabled=${busy.value || (offer.kind === "view" && !shared.value.length)}>Make the link</button>
            </div>
          </form>`
      }
      <${Problem} text=${failure.value} />
      ${current.length > 0 && html`<${Current} links=${current} project=${project} busy=${busy.value} revoke=${revoke} />`}
    <//>
  `;
}

/** @param {{link: Link, words: string}} props */
function Made({ link, words }) {
  if (!link.path) return html`<p>The link was made, but its address was lost: revoke it, and make another.</p>`;
  return html`<div class="made-link" role="status">
    <p>It shows ${words} until ${time(link.expires_at)}. This is the only time that it is shown.</p>
    <p><${Copy} text=${window.location.origin + here(link.path)} label="the view-only link" /></p>
  </div>`;
}

/**
 * Whose runs a view may show.
 * @param {{all: string[], chosen: import("@preact/signals").Signal<string[]>}} props
 */
function Projects({ all, chosen }) {
  if (!all.length) return html`<p class="muted">No run is shown, so there is nothing to share yet.</p>`;
  /** @param {string} name */
  const toggle = (name) =>
    (chosen.value = chosen.peek().includes(name)
      ? chosen.peek().filter((each) => each !== name)
      : [...chosen.peek(), name]);
  return html`<fieldset class="field"><legend>Runs of</legend>
    ${all.map(
      (name) =>
        html`<label key=${name}><input type="checkbox"
          checked=${chosen.value.includes(name)} onChange=${() => toggle(name)} /> ${name}</label>`,
    )}</fieldset>`;
}

/**
 * @param {{links: Link[], project?: string | undefined, busy: boolean, revoke: (id: string) => unknown}} props
 */
function Current({ links, project, busy, revoke }) {
  return html`<section class="links" aria-label="Links that hold">
    <h3>Links ${project === undefined ? "that hold" : `of ${project} that hold`}${" "}
      <span class="count">${links.length}</span></h3>
    <ul>
      ${links.map(
        (link) =>
          html`<li key=${link.id}>
            <div><b>${link.kind}</b> <span class="link-target" title=${targetOf(link)}>${targetOf(link)}</span>
              <small class="muted">${link.note && `${sentence(link.note)} `}By ${link.by}, until ${" "}
                <${Timestamp} time=${link.expires_at} />${
                  link.last_used_at ? html`, opened <${Timestamp} time=${link.last_used_at} relative />` : ", not opened yet"
                }</small></div>
            <button type="button" disabled=${busy}
              aria-label=${`Revoke the link to ${link.kind} ${targetOf(link)}`}
              onClick=${() => revoke(link.id)}>Revoke</button>
          </li>`,
      )}
    </ul>
  </section>`;
}

/** What a link shows, as people read it. @param {Link} link */
const targetOf = (link) =>
  link.kind === "view"
    ? [...new URLSearchParams(link.target)].map(([name, value]) => `${name}: ${value}`).join(", ") || "all runs"
    : link.target;

/** @param {Event} event */
const valueOf = (event) => /** @type {HTMLInputElement | HTMLSelectElement} */ (event.target).value;
