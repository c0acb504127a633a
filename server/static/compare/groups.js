/** Groups of the shown runs: which run is in which, and one curve for all runs of a group. */
import { computed } from "@preact/signals";
import { groupCurve } from "../charts/group-curve.js";
import { display } from "../lib/format.js";
import { loading, only, rowOf, shownIds } from "./runs.js";
import { group as groupedBy } from "./view.js";

/** @typedef {import("../charts/curves.js").Curve} Curve */

const MARK = "group\n"; // no run's id has a line break
const UNKNOWN = `${MARK}?\nnot in the table`;

/** A group's id among those of runs. @param {unknown} value what its runs have in common */
export const groupId = (value) =>
  `${MARK}${typeof value}\n${value === null || value === undefined ? "none" : display(value)}`;

/** @param {string} id of a run or a group */
export const isGroup = (id) => id.startsWith(MARK);

/** How a run or a group is called on a chart. @param {string} id */
export const labelOf = (id) =>
  isGroup(id) ? id.split("\n").slice(2).join(" ") : id.slice(id.indexOf("/") + 1);

/**
 * The group of each shown run; null where runs are not grouped, or it is not known yet how.
 * @type {import("@preact/signals").ReadonlySignal<Map<string, string> | null>}
 */
const groups = computed(() => {
  const by = groupedBy.value;
  if (!by || only.value) return null;
  const rows = rowOf.value;
  let isComplete = !loading.value;
  const membersByGroup = new Map();
  for (const id of shownIds.value) {
    const row = rows.get(id);
    isComplete ||= row !== undefined && (by in row || by in row.values);
    let group = UNKNOWN;
    if (row) {
      const value = by in row ? row[by] : row.values[by];
      group = groupId(value ?? null);
    }
    membersByGroup.set(id, group);
  }
  return isComplete ? membersByGroup : null;
});

/** Which line of the charts is a run's: its own or its group's. @param {string} run */
export const lineOf = (run) => groups.value?.get(run) ?? run;

/** The ids of the lines that the charts have. */
export const lines = computed(() => [...new Set(shownIds.value.map(lineOf))]);

/**
 * What a panel draws: the curves of runs, or one for each group, made anew only where some curve has changed.
 * @returns {(curves: Curve[], smoothed: boolean) => Curve[]}
 */
export function grouper() {
  /** @type {Map<string, {members: Curve[], lengths: number[], curve: Curve}>} */
  let kept = new Map();
  return (curves, smoothed) => {
    if (!groups.peek()) return curves;
    /** @type {Map<string, Curve[]>} */
    const members = new Map();
    for (const curve of curves) {
      if (!curve.length) continue;
      const id = groups.peek()?.get(curve.run) ?? UNKNOWN;
      const own = members.get(id);
      if (own) own.push(curve);
      else members.set(id, [curve]);
    }
    const next = new Map();
    for (const [id, own] of members) {
      const lengths = own.map((curve) => curve.length);
      const old = kept.get(id);
      const same =
        old &&
        old.members.length === own.length &&
        own.every((curve, index) => curve === old.members[index] && lengths[index] === old.lengths[index]);
      next.set(id, same ? old : { members: own, lengths, curve: groupCurve(id, own) });
      const { curve } = next.get(id);
      if (smoothed && own.some((member) => member.whole))
        curve.whole ??= groupCurve(
          id,
          own.map((member) => member.whole ?? member),
        );
    }
    kept = next;
    return [...next.values()].map((entry) => entry.curve);
  };
}
