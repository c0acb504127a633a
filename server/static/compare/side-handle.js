/** What makes the side of the runs wider: by the pointer or by keys. */
import { signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../lib/html.js";
import { chosenWidth, keepWidth, MIN_WIDTH, mostOf } from "./side.js";

const STEP = 20;

/** The width that was chosen, in px; null for that of the style sheet. */
export const width = signal(chosenWidth());

/** @param {number | null} next */
function choose(next) {
  width.value = next === null ? null : Math.round(Math.max(MIN_WIDTH, Math.min(mostOf(innerWidth), next)));
  keepWidth(width.value);
}

export function SideHandle() {
  const handle = useRef(/** @type {HTMLDivElement | null} */ (null));
  // Px, whoever chose them: a reader of the screen is told where the handle stands.
  const now = useSignal(MIN_WIDTH);
  useLayoutEffect(() => {
    const side = /** @type {HTMLElement} */ (handle.current?.parentElement);
    const measure = () => (now.value = Math.round(side.getBoundingClientRect().width));
    const sized = new ResizeObserver(measure);
    measure();
    sized.observe(side);
    return () => sized.disconnect();
  }, []);
  /** @param {Event} event */
  const handleOf = (event) => /** @type {HTMLElement} */ (event.currentTarget);
  /** @param {Event} event */
  const widthNow = (event) =>
    /** @type {HTMLElement} */ (handleOf(event).parentElement).getBoundingClientRect().width;
  /** @param {PointerEvent} event */
  const dragged = (event) => {
    if (handleOf(event).hasPointerCapture(event.pointerId)) choose(event.clientX);
  };
  /** @param {KeyboardEvent} event */
  const keys = (event) => {
    const now = widthNow(event);
    const next = /** @type {Record<string, number | null>} */ ({
      ArrowLeft: now - STEP,
      ArrowRight: now + STEP,
      Home: MIN_WIDTH,
      End: Infinity,
      Enter: null,
    })[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(next);
  };
  return html`<div class="side-handle" ref=${handle} role="separator" tabindex="0" aria-orientation="vertical"
    aria-label="Width of the runs" title="Drag to make the runs wider; a double click undoes it"
    aria-valuenow=${now.value} aria-valuemin=${MIN_WIDTH} aria-valuemax=${Math.max(
      now.value,
      mostOf(innerWidth),
    )} aria-valuetext=${`${now.value} pixels`}
    onPointerDown=${(/** @type {PointerEvent} */ event) => (
      event.preventDefault(),
      handleOf(event).setPointerCapture(event.pointerId)
    )} onPointerMove=${dragged}
    onDblClick=${() => choose(null)} onKeyDown=${keys}></div>`;
}
