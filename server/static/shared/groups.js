/** Groups of a page's runs: one curve for all runs that have the same value of a field. */
import { groupCurve } from "../charts/group-curve.js";
import { display } from "../lib/format.js";

/** @typedef {import("../charts/curves.js").Curve} Curve */
/** @typedef {import("./payload.js").Run} Run */

const MARK = "group\n"; // no run's id has a line break

/**
 * Which line of the charts is a run's: its own, or that of its group.
 * @param {Run[]} runs
 * @param {string} field as a filter names it, "" for no groups
 * @returns {ReadonlyMap<string, string>}
 */
export function linesOf(runs, field) {
  if (!field) return new Map();
  return new Map(
    runs.map((run) => {
      const value = run.columns[field] ?? run[field] ?? null;
      return [run.id, `${MARK}${typeof value}\n${value === null ? "none" : display(value)}`];
    }),
  );
}

/** How a run or a group is called on a chart. @param {string} id */
export const labelOf = (id) =>
  id.startsWith(MARK) ? id.split("\n").slice(2).join(" ") : id.slice(id.indexOf("/") + 1);

/**
 * One curve for each group, or the curves as they are where there are none.
 * @param {Curve[]} curves
 * @param {ReadonlyMap<string, string>} lines
 */
export function grouped(curves, lines) {
  if (!lines.size) return curves;
  /** @type {Map<string, Curve[]>} */
  const members = new Map();
  for (const curve of curves) {
    const line = lines.get(curve.run) ?? curve.run;
    members.set(line, [...(members.get(line) ?? []), curve]);
  }
  return [...members].map(([line, own]) => groupCurve(line, own));
}
