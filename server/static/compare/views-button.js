/** The button of the saved views; what it opens is fetched then. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Later } from "../components/later.js";
import { html } from "../lib/html.js";

const load = async () => (await import("./saved-views.js")).SavedViews;

export function ViewsButton() {
  const open = useSignal(false);
  const wanted = useSignal(false);
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const button = () => box.current?.querySelector("button") ?? null;
  useLayoutEffect(() => {
    if (!open.value) return undefined;
    const outside = (/** @type {Event} */ event) => {
      if (!box.current?.contains(/** @type {Node} */ (event.target))) open.value = false;
    };
    const escaped = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Escape") return;
      open.value = false;
      button()?.focus(); // what had the focus is gone with the menu
    };
    document.addEventListener("mousedown", outside);
    document.addEventListener("keydown", escaped);
    return () => {
      document.removeEventListener("mousedown", outside);
      document.removeEventListener("keydown", escaped);
    };
  }, [open.value]);
  const toggle = () => {
    wanted.value = true;
    open.value = !open.value;
  };
  return html`<div class="chooser" ref=${box}>
    <button type="button" aria-expanded=${open.value} aria-haspopup="dialog" onClick=${toggle}>Views</button>
    ${wanted.value && html`<${Later} load=${load} props=${{ open, button }} />`}
  </div>`;
}
