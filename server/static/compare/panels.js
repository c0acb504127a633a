/** Panels by the prefix of their metric. Only those near to what is seen are there: 12,000 names cost no more than twelve. */
import { signal, useComputed, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { counted } from "../lib/format.js";
import { html } from "../lib/html.js";
import { setQuery } from "../lib/url-state.js";
import { names as known } from "./names.js";
import { Panel } from "./panel.js";
import { metricSearch } from "./view.js";

const HEIGHT = 236;
const HEADER = 34;
const GAP = 10;
const WIDEST = 420;
/** Sections that are closed here. */
const closed = signal(/** @type {ReadonlySet<string>} */ (new Set()));

/** @typedef {{kind: "header", top: number, prefix: string, count: number} | {kind: "row", top: number, names: string[]}} Line */

/** @param {string} name */
const prefixOf = (name) => (name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "");

/**
 * `layer_9` before `layer_10`. Of 12,000 names a collator takes ten times as long.
 * @param {string[]} names
 */
export function naturally(names) {
  const keys = new Map(names.map((name) => [name, name.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"))]));
  const key = (/** @type {string} */ name) => keys.get(name) ?? name;
  return [...names].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

/**
 * Where everything lies.
 * @param {string[]} names in the order in which those of a prefix follow one another
 * @param {number} across panels side by side
 * @param {ReadonlySet<string>} hidden
 */
export function layout(names, across, hidden) {
  /** @type {Map<string, string[]>} */
  const sections = new Map();
  for (const name of names) {
    const prefix = prefixOf(name);
    const section = sections.get(prefix);
    if (section) section.push(name);
    else sections.set(prefix, [name]);
  }
  /** @type {Line[]} */
  const lines = [];
  let top = 0;
  const ordered = [...sections].sort(([a], [b]) => (a < b ? -1 : 1));
  for (const [prefix, members] of ordered) {
    if (prefix || ordered.length > 1) {
      lines.push({ kind: "header", top, prefix, count: members.length });
      top += HEADER;
    }
    if (hidden.has(prefix)) continue;
    for (let at = 0; at < members.length; at += across) {
      lines.push({ kind: "row", top, names: members.slice(at, at + across) });
      top += HEIGHT + GAP;
    }
  }
  return { lines, height: top };
}

/** Words that must all be in a name, or a pattern between slashes. @param {string} text */
export function matcher(text) {
  const pattern = /^\/(.+)\/$/.exec(text.trim())?.[1];
  if (pattern) {
    try {
      const expression = new RegExp(pattern, "i");
      return (/** @type {string} */ name) => expression.test(name);
    } catch {
      return () => false;
    }
  }
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return (/** @type {string} */ name) => words.every((word) => name.toLowerCase().includes(word));
}

/**
 * @param {{system?: boolean}} props system: what the machine measured, by time
 */
export function Panels({ system = false }) {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const size = useSignal({ width: 0, height: 0 });
  const scroll = useSignal(0);
  const all = useComputed(() => naturally((known.value?.metrics ?? []).map((each) => each.name).filter((name) => name.startsWith("system/") === system)));
  const names = useComputed(() => all.value.filter(matcher(metricSearch.value)));
  const across = useComputed(() => Math.max(1, Math.ceil((size.value.width - 2 * GAP) / (WIDEST + GAP))));
  const laid = useComputed(() => layout(names.value, across.value, closed.value));
  const visible = useComputed(() => {
    const [from, to] = [scroll.value - 60, scroll.value + size.value.height + 60];
    const found = laid.value.lines.filter((line) => line.top < to && line.top + (line.kind === "row" ? HEIGHT : HEADER) > from);
    return size.value.width ? found : [];
  });
  useLayoutEffect(() => {
    const box = /** @type {HTMLDivElement} */ (scroller.current);
    const measure = () => {
      const { clientWidth: width, clientHeight: height } = box;
      if (width !== size.peek().width || height !== size.peek().height) size.value = { width, height };
    };
    const sized = new ResizeObserver(measure);
    measure();
    sized.observe(box);
    return () => sized.disconnect();
  }, []);
  const width = (size.value.width - GAP * (across.value + 1)) / across.value;
  return html`
    <div class="panels" ref=${scroller} tabindex="0" role="region" aria-label=${system ? "System metrics" : "Curves"}
      onScroll=${(/** @type {Event} */ event) => (scroll.value = /** @type {HTMLElement} */ (event.target).scrollTop)}>
      <${Space} height=${laid.value.height + GAP}>
        ${visible.value.flatMap((line) =>
          line.kind === "header"
            ? [html`<${Section} key=${`/${line.prefix}`} line=${line} />`]
            : line.names.map(
                (name, index) => html`<${At} key=${name} left=${GAP + index * (width + GAP)} top=${line.top} width=${width}>
                  <${Panel} name=${name} title=${name.slice(name.lastIndexOf("/") + 1)} axis=${system ? "time" : undefined} />
                <//>`,
              ),
        )}
      <//>
      ${known.value && !names.value.length && html`<p class="nothing">${metricSearch.value ? "No metric has this name." : system ? "No run has measured its machine." : "No run has a metric yet."}
        ${metricSearch.value && html` <button class="quiet" type="button" onClick=${() => setQuery({ metrics: null })}>All metrics</button>`}</p>`}
    </div>
  `;
}

/** @param {{height: number, children?: any}} props */
function Space({ height, children }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useLayoutEffect(() => void (box.current && (box.current.style.height = `${height}px`)), [height]);
  return html`<div class="panels-space" ref=${box}>${children}</div>`;
}

/** @param {{left: number, top: number, width: number, children?: any}} props */
function At({ left, top, width, children }) {
  return html`<div class="panel-at" style=${{ left: `${left}px`, top: `${top}px`, width: `${width}px` }}>${children}</div>`;
}

/** @param {{line: {top: number, prefix: string, count: number}}} props */
function Section({ line }) {
  const shut = closed.value.has(line.prefix);
  const toggle = () => {
    const next = new Set(closed.peek());
    if (!next.delete(line.prefix)) next.add(line.prefix);
    closed.value = next;
  };
  return html`<h2 class="section" style=${{ top: `${line.top}px` }}>
    <button class="quiet" type="button" aria-expanded=${!shut} onClick=${toggle}>
      <span class="caret" aria-hidden="true"></span>${line.prefix || "other"} <span class="muted">${counted(line.count, "metric")}</span>
    </button>
  </h2>`;
}
