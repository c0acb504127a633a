/** The view in the URL: what is set here is seen by whoever opens the link. */
import { computed } from "@preact/signals";
import { navigate, url } from "./router.js";

/** The query as it stands. */
export const query = computed(() => url.value.searchParams);

/**
 * Change some of the query; null, undefined and "" take a name away.
 * @param {Record<string, string | number | boolean | readonly string[] | null | undefined>} changes
 * @param {{push?: boolean, often?: boolean}} [options] push: a step that "back" undoes; often: one of many in
 *   a second, as of a slider
 */
export function setQuery(changes, { push = false, often = false } = {}) {
  const next = new URL(url.peek());
  for (const [name, value] of Object.entries(changes)) {
    next.searchParams.delete(name);
    if (value === null || value === undefined || value === "" || value === false) continue;
    if (Array.isArray(value)) for (const item of value) next.searchParams.append(name, item);
    else next.searchParams.set(name, String(value));
  }
  next.search = readable(next.searchParams);
  navigate(next.href, { replace: !push, often });
}

/**
 * One name of the query as a signal.
 * @param {string} name
 * @param {string} [otherwise] where the URL does not have it
 */
export const queryValue = (name, otherwise = "") => computed(() => query.value.get(name) ?? otherwise);

/**
 * A query with what may stand in one left as it is: `params.lr>0.1` is read by people, too.
 * @param {URLSearchParams} params
 */
export function readable(params) {
  return params
    .toString()
    .replace(/%(2C|2F|3A|40|28|29|27|21|24|3B|2A)/gi, (code) => decodeURIComponent(code));
}
