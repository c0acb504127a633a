/** Keys: what a page can do without a mouse, and the help that lists it. */
import { signal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { navigate } from "./router.js";

/**
 * @typedef {{keys: string, does: string, run: (event: KeyboardEvent) => void}} Shortcut keys: one, or two
 *   that are pressed one after the other ("g s")
 */

/** All shortcuts of what is shown, the newest last. */
export const shortcuts = signal(/** @type {Shortcut[]} */ ([]));

/** Whether the help is open. */
export const helpOpen = signal(false);

/**
 * Register shortcuts while a component is shown.
 * @param {Shortcut[]} own
 * @param {unknown[]} [inputs] what they depend on
 */
export function useShortcuts(own, inputs = []) {
  // Not after the next paint: who sees a component may use its keys.
  useLayoutEffect(() => {
    shortcuts.value = [...shortcuts.peek(), ...own];
    return () => {
      shortcuts.value = shortcuts.peek().filter((shortcut) => !own.includes(shortcut));
    };
  }, inputs);
}

/** @type {Shortcut[]} */
export const GLOBAL = [
  { keys: "?", does: "show the keys", run: () => (helpOpen.value = !helpOpen.value) },
  { keys: "g c", does: "go to Compare", run: () => navigate("/") },
  { keys: "g s", does: "go to Sweeps", run: () => navigate("/sweeps") },
  { keys: "g m", does: "go to Models", run: () => navigate("/models") },
  { keys: "g d", does: "go to Datasets", run: () => navigate("/datasets") },
];
shortcuts.value = [...GLOBAL];

let prefix = "";
let prefixed = 0;

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target))
    return;
  if (document.querySelector("dialog[open]") || (event.key === "Enter" && isPressed(event.target))) return;
  const pressed = prefix && event.timeStamp - prefixed < 1000 ? `${prefix} ${event.key}` : event.key;
  prefix = "";
  const shortcut = shortcuts.value.findLast(({ keys }) => keys === pressed);
  if (shortcut) {
    event.preventDefault();
    shortcut.run(event);
  } else if (shortcuts.value.some(({ keys }) => keys.startsWith(`${event.key} `))) {
    prefix = event.key;
    prefixed = event.timeStamp;
  }
});

/** @param {EventTarget | null} target */
function isTyping(target) {
  if (!(target instanceof HTMLElement)) return false;
  return (
    target.isContentEditable ||
    target.matches("textarea, select, input:not([type=checkbox], [type=radio], [type=button], [type=range])")
  );
}

/** Whether Enter is for what has the focus. @param {EventTarget | null} target */
const isPressed = (target) =>
  target instanceof HTMLElement && target.matches("a, button, summary, input, [role=separator]");
