/** The page's place: which page is shown and, in the query, its whole view. Everything that is worth a link is in the URL. */
import { computed, signal } from "@preact/signals";

/** The URL as it stands; pages read it, `navigate` and `setQuery` write it. */
export const url = signal(new URL(window.location.href));

/** The path alone, so that a change of the query does not draw the shell again. */
export const path = computed(() => url.value.pathname);

/**
 * Go to another place of this page.
 * @param {string} href
 * @param {{replace?: boolean}} [options] replace: do not leave the old place in the history
 */
export function navigate(href, { replace = false } = {}) {
  const next = new URL(href, url.value);
  if (next.href === url.value.href) return;
  if (replace) window.history.replaceState(null, "", next);
  else window.history.pushState(null, "", next);
  const moved = next.pathname !== url.value.pathname;
  url.value = next;
  if (moved) window.scrollTo(0, 0);
}

window.addEventListener("popstate", () => {
  url.value = new URL(window.location.href);
});

/** Follow links inside of this page without loading it again; all others are the browser's. */
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a") : null;
  if (!link || link.target || link.hasAttribute("download") || link.origin !== window.location.origin) return;
  if (link.getAttribute("href")?.startsWith("#") || link.pathname.startsWith("/api/")) return;
  event.preventDefault();
  navigate(link.href);
});
