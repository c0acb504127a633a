/**
 * Tables that a click on a head orders; the order is in the URL: `order=name` upwards, `order=-name`
 * downwards.
 */
import { computed } from "@preact/signals";
import { html } from "../lib/html.js";
import { compared } from "../lib/order.js";
import { query, setQuery } from "../lib/url-state.js";

const order = computed(() => query.value.get("order") ?? "");

/**
 * A head that orders by its column: upwards, then downwards, then as before.
 * @param {{by: string, name: import("../lib/html.js").Children, right?: boolean}} props by: the column's name
 *   in the URL
 */
export function SortHead({ by, name, right = false }) {
  /** @type {"none" | "ascending" | "descending"} */
  let direction = "none";
  if (order.value === by) direction = "ascending";
  if (order.value === `-${by}`) direction = "descending";
  const next = { none: by, ascending: `-${by}`, descending: null }[direction];
  return html`<th scope="col" class=${right ? "right" : ""} aria-sort=${direction}>
    <button class="quiet sort" type="button" onClick=${() => setQuery({ order: next })}>${name}
      <span aria-hidden="true">${{ none: "", ascending: " ↑", descending: " ↓" }[direction]}</span></button>
  </th>`;
}

/**
 * Rows as the URL orders them, as they are where it does not; those without a value are last either way.
 * @template Row
 * @param {Row[]} rows
 * @param {(row: Row, by: string) => unknown} valueOf a column's value in a row
 */
export function ordered(rows, valueOf) {
  const down = order.value.startsWith("-");
  const by = order.value.slice(down ? 1 : 0);
  if (!by) return rows;
  const keyed = rows.map((row) => ({ row, value: valueOf(row, by) ?? null }));
  keyed.sort((left, right) => {
    if (left.value === null || right.value === null)
      return Number(left.value === null) - Number(right.value === null);
    return (down ? -1 : 1) * compared(left.value, right.value);
  });
  return keyed.map(({ row }) => row);
}
