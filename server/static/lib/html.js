/** Templates without a build: `html` makes Preact's nodes from tagged text. */
import htm from "htm";
import { h } from "preact";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {import("preact").VNode<any>} Node */

export const html = /** @type {(strings: TemplateStringsArray, ...values: any[]) => Node} */ (
  /** @type {unknown} */ (htm.bind(/** @type {any} */ (h)))
);
