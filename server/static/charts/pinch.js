/**
 * Two fingers on a chart: what is under them stays under them. One finger is left to the page, which it
 * scrolls.
 */

const MIN_APART = 16; // CSS pixels between the fingers, across

/**
 * @param {HTMLElement} area
 * @param {{begin: () => void, move: (scale: number, shift: number) => void, end: () => void}} pinch
 *   move: a place that lay at the share `s` of the area's width when it began lies at `scale * s + shift` now
 */
export function onPinch(area, { begin, move, end }) {
  area.style.touchAction = "pan-y"; // the browser itself would zoom the page
  /** @type {Map<number, number>} where each finger is, as a share of the width */
  const fingers = new Map();
  /** @type {[number, number] | null} where both were at first */
  let first = null;
  const place = (/** @type {PointerEvent} */ event) => {
    const { left, width } = area.getBoundingClientRect();
    fingers.set(event.pointerId, (event.clientX - left) / width);
  };
  const both = () => /** @type {[number, number]} */ ([...fingers.values()]);
  const apart = (/** @type {[number, number]} */ [left, right]) =>
    Math.abs(left - right) * area.clientWidth >= MIN_APART;
  area.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch") return;
    place(event);
    if (fingers.size !== 2 || !apart(both())) return;
    first = both();
    begin();
  });
  area.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    place(event);
    if (!first || !apart(both())) return;
    const [left, right] = both();
    const scale = (left - right) / (first[0] - first[1]);
    if (scale > 0) move(scale, left - scale * first[0]);
  });
  for (const name of /** @type {const} */ (["pointerup", "pointercancel", "pointerleave"])) {
    area.addEventListener(name, (event) => {
      if (!fingers.delete(event.pointerId) || !first) return;
      first = null;
      end();
    });
  }
}
