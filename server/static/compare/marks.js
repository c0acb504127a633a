/**
 * What is marked on the axes of params and metrics: the same in all charts, in the URL, and what a filter
 * makes of it.
 */
import { computed } from "@preact/signals";
import { brushOf, filterOf, isWithin, rangeOf } from "../charts/brush.js";
import { Problem } from "../components/problem.js";
import { counted } from "../lib/format.js";
import { html } from "../lib/html.js";
import { marks, narrowed, setMarks } from "./view.js";

/**
 * @typedef {import("../charts/axis.js").Axis} Axis
 * @typedef {import("../charts/brush.js").Brush} Brush
 * @typedef {import("./parameters.js").Run} Run
 */

const joinedNames = computed(() => JSON.stringify([...marks.value.keys()]));
/** What is marked, by name; it only changes with the names, not with the ranges. */
export const markedNames = computed(() => /** @type {string[]} */ (JSON.parse(joinedNames.value)));

/**
 * Where the marked ranges lie, by the axis's name, without those that no axis has.
 * @param {Record<string, Axis>} axes
 * @returns {Map<string, Brush>}
 */
export function marksOn(axes) {
  /** @type {Map<string, Brush>} */
  const brushes = new Map();
  for (const [name, range] of marks.value) {
    const axis = axes[name];
    const brush = axis && brushOf(axis, range);
    if (brush) brushes.set(name, brush);
  }
  return brushes;
}

/** @param {Run} run @param {ReadonlyMap<string, Brush>} brushes @param {Record<string, Axis>} axes */
export const within = (run, brushes, axes) =>
  [...brushes].every(([name, brush]) => isWithin(/** @type {Axis} */ (axes[name]), brush, run.values[name]));

/**
 * Mark parts of axes, or, with null, mark nothing there.
 * @param {[Axis, Brush | null][]} parts
 * @param {boolean} last false: more follow at once, as of a drag
 */
export function brush(parts, last) {
  const next = new Map(marks.peek());
  for (const [axis, part] of parts) {
    const range = part && rangeOf(axis, part);
    if (range) next.set(axis.name, range);
    else next.delete(axis.name);
  }
  setMarks(next, { often: !last });
}

/**
 * How many runs are within what is marked, and what to do with it.
 * @param {{runs: Run[], axes: Record<string, Axis>, filter: string, onFilter: (filter: string) => void}}
 *   props
 */
export function Marked({ runs, axes, filter, onFilter }) {
  const brushes = marksOn(axes);
  const clear = () => setMarks(new Map());
  const apply = () => {
    const words = [...brushes].map(([name, brush]) =>
      filterOf(
        /** @type {Axis} */ (axes[name]),
        brush,
        runs.map((run) => run.values[name]),
      ),
    );
    onFilter(narrowed(filter, words)); // first, so that "back" has the marks
    clear();
  };
  const left = [...marks.value.keys()].filter((name) => !brushes.has(name));
  return html`
    <div class="tab-bar brushes" role="status">
      ${
        brushes.size
          ? html`<span>${counted(runs.filter((run) => within(run, brushes, axes)).length, "run")} within what
            is marked</span>
              <button class="primary" type="button" onClick=${apply}>Filter by it</button>
              <button type="button" onClick=${clear}>Clear</button>`
          : html`<span class="muted">Drag along an axis, or over the scatter plot, to mark a part of it.
            </span>`
      }
    </div>
    <${Problem} text=${left
      .map((name) => `in the address mark=${name} is ignored: these runs have no such values of it`)
      .join("; ")} />
  `;
}
