/**
 * A text in Markdown, as nodes of the page. No HTML is made of it: what a text has of HTML is shown as it was
 * typed, and images are links, since a page of a team's loads nothing from elsewhere.
 */
import { h } from "preact";
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { html } from "../lib/html.js";

/** @typedef {import("../lib/html.js").Children} Children */
/** @typedef {{type: string, tag: string, nesting: number, content: string, info: string, children: any[] |
 *   null, attrGet: (name: string) => string | null}} Token */

/** The tags that may be made, each with that of the page: a note's headings are below those of the page. */
const TAGS = /** @type {Record<string, string>} */ ({
  h1: "h3",
  h2: "h4",
  h3: "h5",
  h4: "h6",
  h5: "h6",
  h6: "h6",
});
const SAME = new Set(
  "p ul ol li blockquote hr table thead tbody tr th td strong em s br".split(" "),
);
const OUTSIDE = /^(https?:|mailto:)/i;
/** A path of this server; `//` would be another one. */
const INSIDE = /^\/(?![/\\])/;


/** The parser is fetched with the first note: few pages have one. */
async function loadParser() {
  const { default: MarkdownIt } = await import("markdown-it");
  const parser = MarkdownIt({ html: false, linkify: true, breaks: true });
  parser.linkify.set({ fuzzyLink: false, fuzzyEmail: false }); // train.py is no address
  return (/** @type {string} */ text) => /** @type {Token[]} */ (parser.parse(text, {}));
}

/** @type {Promise<(text: string) => Token[]> | undefined} */
let loading;
/** @type {((text: string) => Token[]) | undefined} */
let parse;

/** @param {{text: string}} props */
export function Markdown({ text }) {
  const failed = useSignal(false);
  const ready = useSignal(Boolean(parse));
  useEffect(() => {
    if (parse) return;
    loading ??= loadParser();
    loading.then(
      (loaded) => {
        parse = loaded;
        ready.value = true;
      },
      () => {
        loading = undefined; // the next note tries again
        failed.value = true;
      },
    );
  }, []);
  if (!ready.value || !parse)
    return html`<div class="markdown plain" aria-busy=${!failed.value}>${text}</div>`;
  return html`<div class="markdown">${nodesOf(parse(text))}</div>`;
}

/**
 * The nodes of tokens, which open and close one another in a row.
 * @param {Token[]} tokens
 * @returns {Children[]}
 */
function nodesOf(tokens) {
  /** @type {{token: Token | null, children: Children[]}[]} */
  const open = [{ token: null, children: [] }];
  const add = (/** @type {Children} */ node) => open.at(-1)?.children.push(node);
  for (const token of tokens) {
    if (token.nesting > 0) open.push({ token, children: [] });
    else if (token.nesting < 0) {
      const closed = open.pop();
      if (closed?.token) add(element(closed.token, closed.children));
    } else add(leaf(token));
  }
  return open[0]?.children ?? [];
}

/** @param {Token} token @param {Children[]} children */
function element(token, children) {
  if (token.type === "link_open") return link(token.attrGet("href"), children);
  const tag = TAGS[token.tag] ?? (SAME.has(token.tag) ? token.tag : "span");
  if (tag === "table")
    return html`<div class="scroll" tabindex="0" role="region" aria-label="Table">${h("table", null, ...children)}
      </div>`;
  const start = token.tag === "ol" ? token.attrGet("start") : null;
  return h(tag, start ? { start } : null, ...children);
}

/** @param {Token} token @returns {Children} */
function leaf(token) {
  if (token.type === "inline") return nodesOf(token.children ?? []);
  if (token.type === "code_inline") return h("code", null, token.content);
  if (token.type === "fence" || token.type === "code_block")
    return h("pre", { tabindex: 0 }, h("code", null, token.content));
  if (token.type === "softbreak" || token.type === "hardbreak") return h("br", null);
  if (token.type === "hr") return h("hr", null);
  if (token.type === "image") return link(token.attrGet("src"), [token.content || "image"]);
  return token.content;
}

/**
 * @param {string | null} address
 * @param {Children[]} children
 */
function link(address, children) {
  const rel = "noopener noreferrer nofollow";
  if (address && OUTSIDE.test(address))
    return html`<a href=${address} target="_blank" rel=${rel}>${children}</a>`;
  if (address && INSIDE.test(address)) return html`<a href=${address} rel=${rel}>${children}</a>`;
  return html`<span>${children}</span>`;
}
