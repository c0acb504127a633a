/**
 * Panels by the prefix of their metric. Only those near to what is seen are there: 12,000 names cost no more
 * than twelve.
 */
import { computed, useComputed, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { counted } from "../lib/format.js";
import { html } from "../lib/html.js";
import { query, setQuery } from "../lib/url-state.js";
import { ABSENT, acrossOf, GAP, layout, linesWithin, matcher, metricsOf } from "./layout.js";
import { metricsOfShown, names as columnNames } from "./names.js";
import { Panel } from "./panel.js";
import * as view from "./view.js";

/**
 * Sections that are not as they are at first, by the prefix of their metrics; "" for those without one. What
 * no shown run has is folded at first.
 */
const turnedText = computed(() => JSON.stringify(query.value.getAll("fold")));
const turned = computed(() => /** @type {ReadonlySet<string>} */ (new Set(JSON.parse(turnedText.value))));
const closed = computed(
  () =>
    /** @type {ReadonlySet<string>} */ (
      new Set([ABSENT, ...turned.value].filter((value) => (value === ABSENT) !== turned.value.has(value)))
    ),
);

/**
 * @param {{system?: boolean}} props system: what the machine measured
 */
export function Panels({ system = false }) {
  const scroller = useRef(/** @type {HTMLDivElement | null} */ (null));
  const size = useSignal({ width: 0, height: 0 });
  const scroll = useSignal(0);
  const had = useComputed(
    () => metricsOfShown.value && new Set(metricsOfShown.value.map((metric) => metric.name)),
  );
  const all = useComputed(() => {
    const chosen = columnNames.value?.metrics ?? [];
    // A run may be shown that the filter does not choose.
    const theirs = new Set(chosen.map((metric) => metric.name));
    return metricsOf(
      [...chosen, ...(metricsOfShown.value ?? []).filter((metric) => !theirs.has(metric.name))],
      system,
    );
  });
  const names = useComputed(() => all.value.filter(matcher(view.metricSearch.value)));
  const across = useComputed(() => acrossOf(size.value.width));
  const laid = useComputed(() => layout(names.value, across.value, closed.value, had.value));
  const visible = useComputed(() =>
    size.value.width ? linesWithin(laid.value.lines, scroll.value, size.value.height) : [],
  );
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
    <div class="panels" ref=${scroller} tabindex="0" role="region"
      aria-label=${system ? "System metrics" : "Curves"}
      onScroll=${(/** @type {Event} */ event) =>
        (scroll.value = /** @type {HTMLElement} */ (event.target).scrollTop)}>
      <${Space} height=${laid.value.height + GAP}>
        ${visible.value.flatMap((line) =>
          line.kind === "header"
            ? [html`<${Section} key=${`/${line.prefix}`} line=${line} />`]
            : line.names.map(
                (name, index) =>
                  html`<${Placed} key=${name} left=${GAP + index * (width + GAP)} top=${line.top}
                    width=${width}>
                  <${Panel} name=${name} title=${name.slice(name.lastIndexOf("/") + 1)} axis=${
                    system ? view.systemAxis.value : undefined
                  } />
                <//>`,
              ),
        )}
      <//>
      ${
        columnNames.value &&
        !names.value.length &&
        html`<p class="nothing">
          ${whyNone(system)}
        ${
          view.metricSearch.value &&
          html` <button class="quiet" type="button" onClick=${() => setQuery({ metrics: null })}>All metrics
            </button>`
        }</p>`
      }
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
function Placed({ left, top, width, children }) {
  return html`<div class="panel-at" style=${{ left: `${left}px`, top: `${top}px`, width: `${width}px` }}>
    ${children}</div>`;
}

/** @param {{line: {top: number, prefix: string, count: number}}} props */
function Section({ line }) {
  const shut = closed.value.has(line.prefix);
  const toggle = () => {
    const next = new Set(turned.peek());
    if (!next.delete(line.prefix)) next.add(line.prefix);
    setQuery({ fold: [...next] });
  };
  return html`<h2 class="section" style=${{ top: `${line.top}px` }}>
    <button class="quiet" type="button" aria-expanded=${!shut} onClick=${toggle}>
      <span class="caret" aria-hidden="true"></span>
      ${line.prefix === ABSENT ? "no shown run has these" : line.prefix || "other"} <span class="muted">
      ${counted(line.count, "metric")}</span>
    </button>
  </h2>`;
}

/** Why there is no panel. @param {boolean} system whether those of the machine are shown */
function whyNone(system) {
  if (view.metricSearch.value) return "No metric has this name.";
  if (system) return "None of these runs has measured its machine.";
  return "None of these runs has a metric yet.";
}
