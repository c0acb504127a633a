/** Templates without a build: `html` makes Preact's nodes from tagged text. */
import htm from "htm";
import { h } from "preact";
import { BASE, here } from "./base.js";

/** @typedef {import("preact").ComponentChildren} Children */
/** @typedef {import("preact").VNode<any>} Node */

export const html = /** @type {(strings: TemplateStringsArray, ...values: any[]) => Node} */ (
  /** @type {unknown} */ (htm.bind(/** @type {any} */ (BASE ? below : h)))
);

/**
 * A node whose addresses are below the base path: templates write those of this server as its routes have
 * them, `/sweeps`.
 * @param {any} type a component gets its props as they are
 * @param {Record<string, any> | null} props
 * @param {any[]} children
 */
function below(type, props, ...children) {
  const moved = typeof type === "string" ? ["href", "src"].filter((name) => isOwn(props?.[name])) : [];
  return h(
    type,
    moved.length
      ? { ...props, ...Object.fromEntries(moved.map((name) => [name, here(props?.[name])])) }
      : props,
    ...children,
  );
}

/** @param {unknown} address */
const isOwn = (address) => typeof address === "string" && /^\/(?!\/)/.test(address);
