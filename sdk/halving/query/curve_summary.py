"""A curve in one line: where it began and ended, its best value, its trend, and what stands out.

It is what ``halving summary`` prints and what agents read instead of a million points.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from halving.errors import NotFound
from halving.metrics.points import Points
from halving.query.curve_features import (
    Gap,
    Slope,
    Spike,
    find_plateau,
    find_spikes,
    find_step_gaps,
    find_time_gaps,
    fit_last_tenth,
)
from halving.query.curve_reader import RunCurves, read_run_curves
from halving.query.directions import Direction, guess_direction
from halving.store.store import Store
from halving.text import duration

MAX_LETTERS = 180
"""Of :meth:`CurveSummary.text`: 60 tokens at three letters each."""
MAX_LISTED = 5
"""Spikes, gaps and resumes that a summary lists; it counts all."""
COARSE_POINTS = 4_000
"""Buckets that a curve is read in whose points retention has dropped."""


class Extreme(NamedTuple):
    """A value and the first step that has it."""

    step: int
    value: float


@dataclass(frozen=True)
class CurveSummary:
    """What a stitched curve says, in a few numbers.

    Attributes:
        points: steps with a value, finite or not.
        first, last: as they were logged; they may be NaN or infinite.
        minimum, maximum: over finite values; None without any.
        direction: which of the two is the best; None where neither the caller nor the name says.
        guessed: whether the direction was guessed from the metric's name.
        slope: of the last tenth of the finite points.
        plateau_since: the step since which it is flat.
        spikes, step_gaps, time_gaps: the largest few; ``spike_count`` and so on count all.
        nonfinite: how many values are NaN or infinite; ``nonfinite_first`` is the first step of them, and
            ``nonfinite_to_end`` the one since which all are.
        resumes: the first steps of attempts after the first, with their numbers; the newest few.
        coarse: retention has dropped the points: all is of buckets, and spikes cannot be looked for.
    """

    points: int
    first: Extreme
    last: Extreme
    minimum: Extreme | None
    maximum: Extreme | None
    direction: Direction | None
    guessed: bool
    slope: Slope | None
    plateau_since: int | None
    spike_count: int
    spikes: list[Spike]
    nonfinite: int
    nonfinite_first: int | None
    nonfinite_to_end: int | None
    step_gap_count: int
    step_gaps: list[Gap]
    time_gap_count: int
    time_gaps: list[Gap]
    resume_count: int
    resumes: list[tuple[int, int]]
    coarse: bool = False

    @property
    def best(self) -> Extreme | None:
        """The best finite value and its first step; None where the direction is not known."""
        if self.direction is None:
            return None
        return {"minimize": self.minimum, "maximize": self.maximum}[self.direction]

    def as_dict(self) -> dict[str, Any]:
        """The summary for JSON."""
        fields = asdict(self)
        for name in ("first", "last", "minimum", "maximum", "slope"):
            value = getattr(self, name)
            fields[name] = value and value._asdict()
        for name in ("spikes", "step_gaps", "time_gaps"):
            fields[name] = [item._asdict() for item in getattr(self, name)]
        best = self.best
        fields["best"] = best and best._asdict()
        fields["resumes"] = [{"step": step, "attempt": attempt} for step, attempt in self.resumes]
        return fields

    def text(self) -> str:
        """The summary in at most ``MAX_LETTERS`` ASCII letters, with values as ``value@step``."""
        line = f"n={self.points} {_at(self.first)}->{_at(self.last)}"
        for clause in self._clauses():
            if len(line) + len(clause) + 2 <= MAX_LETTERS:
                line += f"; {clause}"
        return line

    def _clauses(self) -> Iterable[str]:
        """Its facts in words, the ones that a reader needs most come first."""
        if self.nonfinite_to_end is not None:
            yield f"NaN/inf since {self.nonfinite_to_end}"
        elif self.nonfinite:
            yield f"{self.nonfinite} NaN/inf, first {self.nonfinite_first}"
        if self.best is not None:
            word = {"minimize": "min", "maximize": "max"}[self.direction or "minimize"]
            yield f"best({word}{'?' * self.guessed}) {_at(self.best)}"
        elif self.minimum is not None and self.maximum is not None:
            yield f"min {_at(self.minimum)} max {_at(self.maximum)}"
        if self.slope is not None:
            yield self._trend(self.slope)
        if self.spike_count:
            top = self.spikes[0]
            spikes = f"{self.spike_count} spike{'s' * (self.spike_count > 1)}, top {_at(top)}"
            yield f"{spikes} (usual {top.usual:.3g})"
        if self.plateau_since is not None:
            yield f"flat since {self.plateau_since}"
        if self.resume_count:
            step, attempt = self.resumes[-1]
            yield f"{self.resume_count} resumes, #{attempt} at {step}"
        if self.step_gap_count:
            gap = self.step_gaps[0]
            yield f"{self.step_gap_count} step gaps, {gap.after}..{gap.before}"
        if self.time_gap_count:
            gap = self.time_gaps[0]
            yield f"{self.time_gap_count} time gaps, {duration(gap.length / 1000)} after {gap.after}"
        if self.coarse:
            yield "from rollups: points dropped"

    def _trend(self, slope: Slope) -> str:
        if slope.trend == "flat":
            return "end flat"
        if slope.relative is None:
            return f"end {slope.trend} {1000 * slope.per_step:+.2g}/1k"
        return f"end {slope.trend} {100_000 * slope.relative:+.2g}%/1k"


def summarize(points: Points, *, name: str = "", direction: Direction | None = None) -> CurveSummary:
    """Summarize a stitched curve.

    Args:
        points: sorted by step, one for each step; at least one.
        name: of the metric; the direction is guessed from it where none is given.
        direction: which value is the best.
    """
    guessed = direction is None
    if direction is None:
        direction = guess_direction(name)
    finite = np.isfinite(points.value)
    steps = points.step
    values = points.value
    if not finite.all():
        steps = steps[finite]
        values = values[finite]
    spikes = find_spikes(steps, values)
    step_gaps = find_step_gaps(points.step)
    time_gaps = find_time_gaps(points.step, points.time)
    resumes = _resumes(points)
    wrong = np.flatnonzero(~finite)
    return CurveSummary(
        points=len(points.step),
        first=Extreme(int(points.step[0]), float(points.value[0])),
        last=Extreme(int(points.step[-1]), float(points.value[-1])),
        minimum=_extreme(steps, values, np.argmin),
        maximum=_extreme(steps, values, np.argmax),
        direction=direction,
        guessed=guessed and direction is not None,
        slope=fit_last_tenth(steps, values),
        plateau_since=find_plateau(steps, values),
        spike_count=len(spikes),
        spikes=spikes[:MAX_LISTED],
        nonfinite=len(wrong),
        nonfinite_first=_first_of(points.step, wrong),
        nonfinite_to_end=_nonfinite_to_end(points.step, finite),
        step_gap_count=len(step_gaps),
        step_gaps=step_gaps[:MAX_LISTED],
        time_gap_count=len(time_gaps),
        time_gaps=time_gaps[:MAX_LISTED],
        resume_count=len(resumes),
        resumes=resumes[-MAX_LISTED:],
    )


def read_summaries(
    store: Store, project: str, run: str, keys: Iterable[str], direction: Direction | None = None
) -> dict[str, CurveSummary]:
    """Read a run's curves, point by point, and summarize each; a key without points is left out.

    Where retention has dropped the points, the rollups' buckets are summarized, whose extremes are exact.

    Raises:
        StoreError: a metric file is damaged.
    """
    names = list(keys)

    def read(reader: RunCurves) -> dict[str, CurveSummary]:
        summaries = {}
        for key in names:
            summary = _summarize_key(reader, key, direction)
            if summary is not None:
                summaries[key] = summary
        return summaries

    return read_run_curves(store, project, run, names, read)


def _summarize_key(reader: RunCurves, key: str, direction: Direction | None) -> CurveSummary | None:
    try:
        points = reader.stitched_points(key)
    except NotFound:
        return _summarize_units(reader.units(key, COARSE_POINTS), key, direction)
    if not len(points.step):
        return None
    return summarize(points, name=key, direction=direction)


def _summarize_units(units: Any, key: str, direction: Direction | None) -> CurveSummary | None:
    """Summarize buckets: means stand for points, while counts and extremes are the points' own."""
    if not len(units):
        return None
    attempts = np.ones(len(units), np.int32)
    means = Points(attempts, units["step"], units["wall_time"], units["mean"])
    fields = vars(summarize(means, name=key, direction=direction))
    finite = units[units["nonfinite"] < units["count"]]
    first_wrong = np.flatnonzero(units["nonfinite"])
    fields |= {
        "points": int(units["count"].sum()),
        "last": Extreme(int(units["step_last"][-1]), float(units["last"][-1])),
        "minimum": _extreme(finite["step"], finite["min"], np.argmin),
        "maximum": _extreme(finite["step"], finite["max"], np.argmax),
        "spike_count": 0,
        "spikes": [],
        "nonfinite": int(units["nonfinite"].sum()),
        "nonfinite_first": _first_of(units["step"], first_wrong),
        "coarse": True,
    }
    return CurveSummary(**fields)


def _extreme(steps: Any, values: Any, place_of: Any) -> Extreme | None:
    if not len(values):
        return None
    place = int(place_of(values))
    return Extreme(int(steps[place]), float(values[place]))


def _first_of(steps: Any, places: Any) -> int | None:
    if not len(places):
        return None
    return int(steps[places[0]])


def _nonfinite_to_end(steps: Any, finite: Any) -> int | None:
    if finite[-1]:
        return None
    ends = np.flatnonzero(finite)
    if not len(ends):
        return int(steps[0])
    return int(steps[ends[-1] + 1])


def _resumes(points: Points) -> list[tuple[int, int]]:
    """The first step of each attempt that goes on where another one was, and its number."""
    places = np.flatnonzero(np.diff(points.attempt)) + 1
    return [(int(points.step[place]), int(points.attempt[place])) for place in places]


def _at(extreme: Extreme | Spike) -> str:
    return f"{extreme.value:.4g}@{extreme.step}"
