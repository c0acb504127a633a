/** Light and dark: the system's, until one is chosen here. */
import { computed, effect, signal } from "@preact/signals";

const KEY = "halving.theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", () => {
  systemDark.value = system.matches;
});

/** @typedef {"system" | "light" | "dark"} Choice */

/** What was chosen; `early.js` has read it before the first paint. */
export const choice = signal(/** @type {Choice} */ (document.documentElement.dataset.theme ?? "system"));

/** The theme that is shown. Canvases read it to draw themselves again. */
export const theme = computed(() => {
  if (choice.value !== "system") return choice.value;
  return systemDark.value ? "dark" : "light";
});

effect(() => {
  if (choice.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice.value;
});

/** @param {Choice} next */
export function choose(next) {
  choice.value = next;
  try {
    if (next === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, next);
  } catch {
    // Without storage it holds until the page is left.
  }
}

/** @type {{theme: string, colours: Map<string, string>}} */
let resolved = { theme: "", colours: new Map() };

/**
 * A colour of the style sheet as a canvas wants it, such as `token("--line")`.
 * @param {string} name
 * @returns {string} `rgb(…)`
 */
export function token(name) {
  if (resolved.theme !== theme.value) resolved = { theme: theme.value, colours: new Map() };
  let colour = resolved.colours.get(name);
  if (!colour) {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    colour = getComputedStyle(probe).color;
    probe.remove();
    resolved.colours.set(name, colour);
  }
  return colour;
}
