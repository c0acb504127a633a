/**
 * The page's place: which page is shown and, in the query, its whole view. Everything that is worth a link is
 * in the URL.
 */
import { computed, signal } from "@preact/signals";
import { here, isHere, within } from "./base.js";

/** The URL as it stands; pages read it, `navigate` and `setQuery` write it. */
export const url = signal(new URL(window.location.href));

/** The path alone, without the base path, so that a change of the query does not draw the shell again. */
export const path = computed(() => within(url.value.pathname));

/** Milliseconds between two entries of a slider: Safari refuses more than 100 in 30 s. */
const OFTEN_MS = 400;
let late = 0;

/**
 * Go to another place of this page.
 * @param {string} href a path of the page's own, `/sweeps`, a query, or a whole URL
 * @param {{replace?: boolean, often?: boolean}} [options] replace: do not leave the old place in the history;
 *   often: replace it, and write the last of several such places alone
 */
export function navigate(href, { replace = false, often = false } = {}) {
  const next = new URL(href.startsWith("/") ? here(href) : href, url.value);
  if (next.href === url.value.href) return;
  if (often) {
    url.value = next;
    late ||= window.setTimeout(writeLate, OFTEN_MS);
    return;
  }
  if (late) writeLate();
  if (replace) window.history.replaceState(window.history.state, "", next);
  else {
    keep(WINDOW, window.scrollY);
    window.history.pushState({ entry: crypto.getRandomValues(new Uint32Array(2)).join("-") }, "", next);
  }
  show(next);
}

function writeLate() {
  clearTimeout(late);
  late = 0;
  window.history.replaceState(window.history.state, "", url.value);
}

window.addEventListener("popstate", () => {
  clearTimeout(late);
  late = 0;
  keep(WINDOW, window.scrollY);
  show(new URL(window.location.href));
});

/** @param {URL} next */
function show(next) {
  const moved = next.pathname !== url.value.pathname;
  entry = entryNow();
  url.value = next;
  if (!moved) return;
  arrive();
  scrollBack(kept(WINDOW));
}

/** Where what scrolls stood, by the history's entry: "back" shows what was looked at. */
const places = new Map();
const WINDOW = "window";
const entryNow = () => window.history.state?.entry ?? "";
/** The entry that is shown: the browser's is already the next one when it says so. */
let entry = entryNow();

/**
 * Remember how far something is scrolled, for when the reader comes back.
 * @param {string} name of what scrolls
 * @param {number} top in px
 */
export const keep = (name, top) => void places.set(`${entry} ${name}`, top);

/**
 * How far it was scrolled when this entry of the history was left, in px; 0 where it is new.
 * @param {string} name of what scrolls
 * @returns {number}
 */
export const kept = (name) => places.get(`${entry} ${name}`) ?? 0;

/** Follow links inside of this page without loading it again; all others are the browser's. */
document.addEventListener("click", (event) => {
  if (
    event.defaultPrevented ||
    event.button !== 0 ||
    event.metaKey ||
    event.ctrlKey ||
    event.shiftKey ||
    event.altKey
  )
    return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== window.location.origin) return;
  if (
    link.getAttribute("href")?.startsWith("#") ||
    !isHere(link.pathname) ||
    within(link.pathname).startsWith("/api/")
  )
    return;
  event.preventDefault();
  navigate(link.href);
});

let scrolling = new AbortController();

/**
 * Scroll the window there as soon as the page is as long, unless the reader does something before: its
 * content comes later than the browser would scroll.
 * @param {number} top in px
 */
function scrollBack(top) {
  scrolling.abort();
  scrolling = new AbortController();
  window.scrollTo(0, top);
  if (!top) return;
  const ends = scrolling;
  const sized = new ResizeObserver(() => {
    window.scrollTo(0, top);
    if (Math.abs(window.scrollY - top) < 1) ends.abort();
  });
  sized.observe(document.body);
  ends.signal.addEventListener("abort", () => sized.disconnect());
  for (const does of ["wheel", "pointerdown", "keydown", "touchstart"])
    addEventListener(does, () => ends.abort(), { once: true, signal: ends.signal });
}

/**
 * What screen readers are told of a page that was opened without loading: its title, as soon as it has one.
 */
const said = Object.assign(document.createElement("div"), { className: "sr-only", role: "status" });
document.body.append(said);
let arrived = false;
new MutationObserver(() => {
  if (arrived && document.title !== "Halving") said.textContent = document.title;
}).observe(document.head, { subtree: true, childList: true, characterData: true });

/** The keys begin at the new page, not where they were in the old one. */
function arrive() {
  arrived = true;
  document.getElementById("main")?.focus({ preventScroll: true });
}
