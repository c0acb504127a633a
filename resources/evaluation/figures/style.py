"""What the figures share: their look, colours with one meaning, and limits that keep the page small."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, ParamSpec

ACCENT = "#2b6cb0"
QUIET = "#a0aec0"
GOOD = "#2f855a"
BAD = "#c53030"
AUDIT = "#b7791f"
FAINT = "#e2e8f0"
COLORWAY = [
    "#2b6cb0",
    "#c05621",
    "#2f855a",
    "#6b46c1",
    "#b7791f",
    "#2c7a7b",
    "#97266d",
    "#4a5568",
    "#9b2c2c",
    "#285e61",
]
# The shades for few and for many epochs.
_LIGHT = (190, 227, 248)
_DARK = (26, 54, 93)
_UNITS = ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "hours"), (120, 60, "minutes"), (0, 1, "seconds"))

SAMPLED = "a quarter of those drawn are the best, the rest is an even sample"
"""What :func:`resources.search.spread.spread` keeps of items that are sorted with the best first."""

_log = logging.getLogger(__name__)
_Parameters = ParamSpec("_Parameters")


@dataclass(frozen=True)
class Figure:
    """One figure of the page.

    Attributes:
        reading: how to read it, in a sentence; or why there is no plot.
        plot: a Plotly figure, or None when there is nothing to draw.
        left_out: what is not drawn, to keep the page small.
        own_look: whether it keeps the look of the evaluator that gave it, instead of the common template.
    """

    title: str
    reading: str
    plot: Any | None = None
    left_out: str = ""
    own_look: bool = False

    def drawing(self) -> dict[str, Any] | None:
        """The plot as Plotly's script takes it; None without a plot."""
        if self.plot is None:
            return None
        drawing: dict[str, Any] = self.plot.to_dict()
        if not self.own_look:
            drawing["layout"]["template"] = _template()
        return drawing


@cache
def _template() -> dict[str, Any]:
    """The common template as plain data.

    A figure would check and copy all of it, which takes longer than drawing the figure.
    """
    import plotly.io

    template: dict[str, Any] = plotly.io.templates["plotly_white"].to_plotly_json()
    return template


def apply_style(figure: Any, x: str = "", y: str = "", height: int = 360) -> Any:
    """Give a figure the common look without the template, titles of its axes and a height in pixels."""
    figure.update_layout(
        colorway=COLORWAY,
        title=None,
        height=height,
        margin={"l": 60, "r": 20, "t": 24, "b": 50},
        font={"family": "system-ui, sans-serif", "size": 13},
        hoverlabel={"align": "left"},
    )
    if x:
        figure.update_xaxes(title_text=x)
    if y:
        figure.update_yaxes(title_text=y)
    return figure


def dots(figure: Any, points: Sequence[tuple[Any, Any, str]], **look: Any) -> None:
    """Draw points, each with x, y, and the text that the mouse shows."""
    figure.add_scatter(
        x=[x for x, _, _ in points],
        y=[y for _, y, _ in points],
        text=[text for _, _, text in points],
        mode="markers",
        **look,
    )


def shades(steps: Sequence[int]) -> dict[int, str]:
    """A shade for each number of epochs, darker for more."""
    ordered = sorted(set(steps))
    share = {step: place / max(1, len(ordered) - 1) for place, step in enumerate(ordered)}
    return {
        step: "rgb({}, {}, {})".format(
            *(round(a + (b - a) * share[step]) for a, b in zip(_LIGHT, _DARK, strict=True))
        )
        for step in ordered
    }


def value_range(values: Sequence[float], maximize: bool) -> tuple[list[float] | None, int]:
    """The range of an axis without results far on the worse side, and how many those are; None when all fit.

    Far means: further from the median than ten times the distance between the best result and the median.
    """
    sign = -1 if maximize else 1
    losses = sorted(sign * value for value in values)
    if len(losses) < 8:
        return None, 0
    best = losses[0]
    median = losses[len(losses) // 2]
    limit = median + 10 * (median - best)
    outside = sum(loss > limit for loss in losses)
    if not outside or median == best:
        return None, 0
    worst = max(loss for loss in losses if loss <= limit)
    margin = 0.05 * (worst - best)
    return sorted([sign * (best - margin), sign * (worst + margin)]), outside


def without_outliers(figure: Any, values: Sequence[float], maximize: bool) -> str:
    """Cut results far on the worse side off the y axis; return how many, for people, "" if none."""
    limits, outside = value_range(values, maximize)
    figure.update_yaxes(range=limits)
    if not outside:
        return ""
    return f"{outside} results far on the worse side (double-click zooms out)"


def clock(began: datetime, ended: datetime) -> tuple[Callable[[datetime], float], str]:
    """A function that gives the time since ``began`` in the unit that fits, and the unit."""
    whole = (ended - began).total_seconds()
    _, size, unit = next(entry for entry in _UNITS if whole >= entry[0])

    def elapsed(time: datetime) -> float:
        return (time - began).total_seconds() / size

    return elapsed, unit


def missing(kept: int, total: int, noun: str) -> str:
    """``5 of 20 trials``, if five are left out; "" if all are kept."""
    if kept >= total:
        return ""
    return f"{total - kept} of {total} {noun}"


def not_drawn(*parts: str) -> str:
    """A sentence on what a figure leaves out; "" if all parts are empty."""
    left_out = "; ".join(part for part in parts if part)
    if not left_out:
        return ""
    return f"Not drawn: {left_out}."


def draw_guarded(
    title: str,
    draw: Callable[_Parameters, Figure | list[Figure]],
    *args: _Parameters.args,
    **kwargs: _Parameters.kwargs,
) -> list[Figure]:
    """Draw figures; if that fails the error takes their place, so that the rest of the page is made."""
    try:
        figures = draw(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  # Plotly and Optuna on data of any shape
        _log.exception("the figure %s cannot be drawn", title)
        return [Figure(title, f"This figure could not be drawn: {type(error).__name__}: {error}")]
    return figures if isinstance(figures, list) else [figures]
