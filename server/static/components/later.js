/** A component whose module is fetched when it is shown first. */
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { html } from "../lib/html.js";
import { Problem } from "./problem.js";

/** @typedef {import("preact").ComponentType<any>} Component */

/**
 * @param {{load: () => Promise<Component>, props: object}} props load: must stay the same while this is shown
 */
export function Later({ load, props }) {
  const component = useSignal(/** @type {Component | null} */ (null));
  const failed = useSignal("");
  // Not after the first paint, as other effects: it would only show that nothing is there yet.
  useLayoutEffect(() => {
    load().then(
      (loaded) => (component.value = loaded),
      (error) => {
        const advice = "Reload it when the server is back.";
        failed.value = `This page could not be loaded: ${error.message}. ${advice}`;
      },
    );
  }, []);
  if (failed.value) return html`<div class="page"><${Problem} text=${failed.value} /></div>`;
  if (!component.value) return html`<div class="page" aria-busy="true"></div>`;
  return html`<${component.value} ...${props} />`;
}
