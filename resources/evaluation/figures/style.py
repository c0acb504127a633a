"""What the figures share: their look, colours that mean the same everywhere, and limits that keep the page small."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

ACCENT, QUIET, GOOD, BAD, AUDIT, FAINT = "#2b6cb0", "#a0aec0", "#2f855a", "#c53030", "#b7791f", "#e2e8f0"
COLORWAY = ["#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b7791f", "#2c7a7b", "#97266d", "#4a5568", "#9b2c2c", "#285e61"]
_LIGHT, _DARK = (190, 227, 248), (26, 54, 93)  # shades for few and for many epochs
_UNITS = ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))

SAMPLED = "a quarter of those drawn are the best, the rest is an even sample"
"""What :func:`spread` keeps of items that are sorted with the best first."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    Attributes:
        reading: how to read it, in a sentence; or why there is no plot.
        plot: a Plotly figure, or None when there is nothing to draw.
        left_out: what is not drawn, to keep the page small.
    """

    name: str
    title: str
    reading: str
    plot: Any | None
    left_out: str = ""


@dataclass(frozen=True)
class Axes:
    """The titles of the axes, and the figure's height in pixels."""

    x: str
    y: str
    height: int = 360


def styled(figure: Any, axes: Axes) -> Any:
    """The figure in the look that all figures share."""
    figure.update_layout(
        template="plotly_white",
        colorway=COLORWAY,
        title=None,
        height=axes.height,
        margin={"l": 60, "r": 20, "t": 24, "b": 50},
        font={"family": "system-ui, sans-serif", "size": 13},
        hoverlabel={"align": "left"},
    )
    if axes.x:
        figure.update_xaxes(title_text=axes.x)
    if axes.y:
        figure.update_yaxes(title_text=axes.y)
    return figure


def shades(steps: Sequence[int]) -> dict[int, str]:
    """A shade for each number of epochs, darker for more."""
    ordered = sorted(set(steps))
    share = {step: place / max(1, len(ordered) - 1) for place, step in enumerate(ordered)}
    return {
        step: "rgb({}, {}, {})".format(*(round(a + (b - a) * share[step]) for a, b in zip(_LIGHT, _DARK, strict=True))) for step in ordered
    }


_Item = TypeVar("_Item")


def spread(items: Sequence[_Item], limit: int) -> list[_Item]:
    """At most ``limit`` of the items: a quarter are the first ones, the others are taken evenly from the rest."""
    if len(items) <= limit:
        return list(items)
    first = limit // 4
    rest, wanted = items[first:], limit - first
    return [*items[:first], *(rest[index * len(rest) // wanted] for index in range(wanted))]


def value_range(values: Sequence[float], maximize: bool) -> tuple[list[float] | None, int]:
    """The range of an axis without results far on the worse side, and how many those are; None when all fit.

    Far means: further from the median than ten times the distance between the best result and the median.
    """
    losses = sorted(-value if maximize else value for value in values)
    if len(losses) < 8:
        return None, 0
    best, median = losses[0], losses[len(losses) // 2]
    limit = median + 10 * (median - best)
    outside = sum(loss > limit for loss in losses)
    if not outside or median == best:
        return None, 0
    worst = max(loss for loss in losses if loss <= limit)
    margin = 0.05 * (worst - best)
    low, high = best - margin, worst + margin
    return ([-high, -low] if maximize else [low, high]), outside


def clock(began: datetime, ended: datetime) -> tuple[Callable[[datetime], float], str]:
    """A function that gives the time since ``began`` in the unit that fits, and the unit."""
    whole = (ended - began).total_seconds()
    _, size, unit = next(entry for entry in _UNITS if whole >= entry[0])

    def elapsed(moment: datetime) -> float:
        return (moment - began).total_seconds() / size

    return elapsed, unit


def in_epochs(count: int) -> str:
    return f"{count} epoch" if count == 1 else f"{count} epochs"


def not_drawn(parts: Sequence[str]) -> str:
    return f"Not drawn: {'; '.join(parts)}." if parts else ""


def drawn(name: str, title: str, draw: Callable[[], Figure | list[Figure]]) -> list[Figure]:
    """The figures; when drawing fails, the error in their place: a winner gets its report without a figure."""
    try:
        figures = draw()
    except Exception as error:  # noqa: BLE001  # Plotly and Optuna on data of any shape
        _log.exception("the figure %s cannot be drawn", name)
        return [Figure(name, title, f"This figure could not be drawn: {type(error).__name__}: {error}", None)]
    return figures if isinstance(figures, list) else [figures]
