/** Dialogs of the browser's own: they hold the focus, close on Escape, and give the focus back. */
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { sender } from "../lib/api.js";
import { html } from "../lib/html.js";
import { Problem } from "./problem.js";

/**
 * @param {{title: string, onClose: () => void, children?: import("../lib/html.js").Children}} props
 */
export function Dialog({ title, onClose, children }) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => element?.close();
  }, []);
  /** @param {MouseEvent} event */
  const outside = (event) => event.target === dialog.current && onClose();
  return html`
    <dialog ref=${dialog} aria-labelledby="dialog-title" onCancel=${onClose} onClick=${outside}>
      <div class="dialog-body">
        <div class="dialog-top">
          <h2 id="dialog-title">${title}</h2>
          <button class="icon" type="button" aria-label="Close" onClick=${onClose}>×</button>
        </div>
        ${children}
      </div>
    </dialog>
  `;
}

/**
 * Ask before something is done that others see.
 * @param {{title: string, text: import("../lib/html.js").Children, does: string, leaves?: string, danger?:
 *   boolean, act: (send: import("../lib/api.js").Send) => Promise<unknown>, onClose: () => void, children?:
 *   import("../lib/html.js").Children}} props does, leaves: the words on the button that does it, and on the
 *   other; act: sends with what it is given, so that a second press does nothing twice
 */
export function Confirm({ title, text, does, leaves = "Cancel", danger = false, act, onClose, children }) {
  const busy = useSignal(false);
  const failed = useSignal("");
  const send = useMemo(sender, []);
  /** @param {Event} event */
  const submit = async (event) => {
    event.preventDefault();
    busy.value = true;
    failed.value = "";
    try {
      await act(send);
      onClose();
    } catch (error) {
      failed.value = /** @type {Error} */ (error).message;
    } finally {
      busy.value = false;
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <form onSubmit=${submit}>
        <p>${text}</p>
        ${children}
        <${Problem} text=${failed.value} />
        <div class="actions">
          <button type="button" onClick=${onClose}>${leaves}</button>
          <button type="submit" class=${danger ? "danger" : "primary"} disabled=${busy.value}>${does}</button>
        </div>
      </form>
    <//>
  `;
}
