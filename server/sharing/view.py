"""A view of the Compare page, as its address says it: ``server/static/compare/view.js`` writes these."""

import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl

from halving.errors import InvalidInput
from halving.query.run_filter import RunFilter
from halving.query.run_filter_parser import parse_fields, parse_filter

MAX_RUNS = 500
"""Of a page."""
FIRST_RUNS = 20
"""Shown by an address that does not say how many."""

Axis = Literal["step", "time", "relative"]
_ZOOM = {"zoom": "step", "zoom-time": "time", "zoom-relative": "relative"}
_NUMBER = r"[-+\d.eE]+"
_BOUNDS = re.compile(rf"({_NUMBER})_({_NUMBER})")
_METRIC_BOUNDS = re.compile(rf"(.+):({_NUMBER})_({_NUMBER})", re.DOTALL)
Bounds = tuple[float, float]


@dataclass(frozen=True)
class View:
    """What Compare shows.

    Attributes:
        filter: which runs, in which order, as text.
        columns: what the table has of each run, as a filter names it.
        group: the field by which runs are grouped, whose curves are then one; empty: they are not.
        top: how many runs of the filter's order are shown.
        besides, hidden: ids of runs that are shown besides, and that are not.
        search: part of the names of the metrics that are shown; empty is all.
        system: whether the metrics are those that the machine measured, and none of the script's.
        smoothing: the weight of the past for each point, from 0 to below 1.
        zooms: the window of each axis, its lower end first.
        metric_zooms: the window of values of each metric.
    """

    filter: str = ""
    columns: tuple[str, ...] = ()
    group: str = ""
    top: int = FIRST_RUNS
    besides: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    search: str = ""
    system: bool = False
    axis: Axis = "step"
    log_x: bool = False
    log_y: bool = False
    smoothing: float = 0.0
    band: bool = True
    zooms: dict[str, Bounds] = field(default_factory=dict)
    metric_zooms: dict[str, Bounds] = field(default_factory=dict)

    @property
    def runs(self) -> RunFilter:
        """The parsed filter."""
        return parse_filter(self.filter)

    def drawing(self) -> dict[str, Any]:
        """How the page's charts begin, for its script."""
        return {
            "axis": self.axis,
            "logX": self.log_x,
            "logY": self.log_y,
            "smoothing": self.smoothing,
            "band": self.band,
            "zooms": self.zooms,
            "metricZooms": self.metric_zooms,
        }


def parse_view(query: str) -> View:
    """The view that a query of the Compare page says; what concerns no shared page is left out.

    Raises:
        InvalidInput: one of its values is not accepted.
    """
    pairs = parse_qsl(query.removeprefix("?"), keep_blank_values=True)
    values = dict(pairs)
    for name, value in pairs:
        if "\0" in value:
            raise InvalidInput(f"{name} {value!r:.200} in the address is not accepted: no text has NUL in it")
    is_system = values.get("tab") == "system"
    axis = values.get("x", "step")
    if is_system:  # what the machine measures has no steps
        axis = values.get("sysx", "relative")
    view = View(
        filter=values.get("filter", ""),
        columns=tuple(str(column) for column in parse_fields(values.get("columns", ""))),
        group=_parse_group(values.get("group", "")),
        top=_parse_top(values.get("top", str(FIRST_RUNS))),
        besides=_ids(values.get("show", "")),
        hidden=_ids(values.get("hide", "")),
        search=values.get("metrics", ""),
        system=is_system,
        axis=_parse_axis(axis),
        log_x=values.get("logx") == "1",
        log_y=values.get("logy") == "1",
        smoothing=_parse_smoothing(values.get("smooth", "0")),
        band=values.get("band") != "0",
        zooms={axis: _parse_zoom(name, values[name]) for name, axis in _ZOOM.items() if values.get(name)},
        metric_zooms=dict(_parse_metric_zoom(value) for name, value in pairs if name == "zoom-y" and value),
    )
    parse_filter(view.filter)
    return view


def _ids(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)


def _parse_group(text: str) -> str:
    fields = parse_fields(text)
    if len(fields) > 1:
        raise InvalidInput(f"group {text!r} in the address is not accepted: give one field")
    return "".join(map(str, fields))


def _parse_top(text: str) -> int:
    try:
        top = int(text)
    except ValueError:
        top = -1
    if not 0 <= top <= 1000:
        raise InvalidInput(f"top {text!r} in the address is not accepted: give a number of runs, 0 to 1000")
    return top


def _parse_axis(text: str) -> Axis:
    for axis in get_args(Axis):
        if text == axis:
            return axis
    raise InvalidInput(f"x {text!r} in the address is not accepted: give {', '.join(get_args(Axis))}")


def _parse_smoothing(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight < 1:
        raise InvalidInput(f"smooth {text!r} in the address is not accepted: give a number from 0 to below 1")
    return weight


def _parse_zoom(name: str, text: str) -> Bounds:
    match = _BOUNDS.fullmatch(text)
    bounds = _bounds(match[1], match[2]) if match else None
    if bounds is None:
        raise InvalidInput(
            f"{name} {text!r} in the address is not accepted: give LOW_HIGH, two numbers, the lower one first"
        )
    return bounds


def _parse_metric_zoom(text: str) -> tuple[str, Bounds]:
    match = _METRIC_BOUNDS.fullmatch(text)
    bounds = _bounds(match[2], match[3]) if match else None
    if match is None or bounds is None:
        raise InvalidInput(
            f"zoom-y {text!r} in the address is not accepted: give METRIC:LOW_HIGH, two numbers, the lower "
            "one first"
        )
    return match[1], bounds


def _bounds(low_text: str, high_text: str) -> Bounds | None:
    try:
        low = float(low_text)
        high = float(high_text)
    except ValueError:
        return None
    if math.isfinite(low) and math.isfinite(high) and low < high:
        return low, high
    return None
