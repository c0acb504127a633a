/**
 * Where panels lie, by the prefix of their metric. It imports nothing: first-curves.js asks it before the
 * page is there.
 */

const HEIGHT = 236;
const HEADER = 34;
export const GAP = 10;
const WIDEST = 420;
const MARGIN = 60;

/**
 * @typedef {{kind: "header", top: number, prefix: string, count: number} | {kind: "row", top: number, names:
 *   string[]}} Line
 */

/** @param {string} name */
const prefixOf = (name) => (name.includes("/") ? name.slice(0, name.lastIndexOf("/")) : "");

/**
 * `layer_9` before `layer_10`. Of 12,000 names a collator takes ten times as long.
 * @param {string[]} names
 */
function naturally(names) {
  const keys = new Map(
    names.map((name) => [name, name.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(12, "0"))]),
  );
  const key = (/** @type {string} */ name) => keys.get(name) ?? name;
  return [...names].sort((a, b) => (key(a) < key(b) ? -1 : Number(key(a) > key(b))));
}

/** The section of the metrics that no shown run has; no metric has a name that gives this prefix. */
export const ABSENT = "\n";

/**
 * Where everything lies.
 * @param {string[]} names in the order in which those of a prefix follow one another
 * @param {number} across panels side by side
 * @param {ReadonlySet<string>} hidden sections that are closed
 * @param {ReadonlySet<string> | null} [had] the metrics that shown runs have, null for all: the others come
 *   last, in a section of their own
 */
export function layout(names, across, hidden, had = null) {
  /** @type {Map<string, string[]>} */
  const sections = new Map();
  for (const name of names) {
    const prefix = had && !had.has(name) ? ABSENT : prefixOf(name);
    const section = sections.get(prefix);
    if (section) section.push(name);
    else sections.set(prefix, [name]);
  }
  /** @type {Line[]} */
  const lines = [];
  let top = 0;
  const ordered = [...sections].sort(([a], [b]) => (b === ABSENT || (a !== ABSENT && a < b) ? -1 : 1));
  for (const [prefix, members] of ordered) {
    if (prefix || ordered.length > 1) {
      lines.push({ kind: "header", top, prefix, count: members.length });
      top += HEADER;
    }
    if (hidden.has(prefix)) continue;
    for (let first = 0; first < members.length; first += across) {
      lines.push({ kind: "row", top, names: members.slice(first, first + across) });
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
 * The metrics of the curves' tab, or of the system's, as they follow one another.
 * @param {{name: string}[]} metrics
 * @param {boolean} system what the machine measured
 */
export const metricsOf = (metrics, system) =>
  naturally(metrics.map((metric) => metric.name).filter((name) => name.startsWith("system/") === system));

/** How many panels lie side by side. @param {number} width */
export const acrossOf = (width) => Math.max(1, Math.ceil((width - 2 * GAP) / (WIDEST + GAP)));

/**
 * The lines that are seen, or nearly.
 * @param {Line[]} lines
 * @param {number} scroll
 * @param {number} height
 */
export const linesWithin = (lines, scroll, height) =>
  lines.filter(
    (line) =>
      line.top < scroll + height + MARGIN &&
      line.top + (line.kind === "row" ? HEIGHT : HEADER) > scroll - MARGIN,
  );
