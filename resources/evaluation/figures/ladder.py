"""The rung ladder: a figure of when each trial was promoted, paused or stopped."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from halving.text import count_of
from resources.analysis.attempts import Attempt
from resources.analysis.summary import SweepSummary
from resources.analysis.timeline import Milestone, Timeline
from resources.catalog.trial_key import trial_key
from resources.evaluation.figures import style
from resources.evaluation.figures.style import (
    Figure,
    apply_style,
    clock,
    dots,
    missing,
    not_drawn,
    shades,
)
from resources.search.spread import spread

_LINES = 400  # trials drawn, of all brackets together
_GAP = 60  # pixels between two brackets


def ladder(summary: SweepSummary, timeline: Timeline) -> Figure:
    """Draw every trial as a line over time, darker at higher rungs, with the decision at each rung.

    Each bracket has a panel of its own.
    """
    from plotly.subplots import make_subplots

    title = "Rung ladder"
    if not timeline.attempts or not timeline.began or not timeline.ended:
        return Figure(title, "No attempt at a trial was recorded.")
    elapsed, unit = clock(timeline.began, timeline.ended)
    rows = _climbers(timeline)
    heights = [60 + min(560, 7 * len(places)) for places in rows.values()]
    titles = None
    if len(rows) > 1:
        titles = [f"bracket {bracket + 1}: {_ladder_of(summary, bracket)}" for bracket in rows]
    inside = sum(heights) + _GAP * (len(rows) - 1)
    spacing = 0.0
    if len(rows) > 1:
        spacing = _GAP / inside
    figure = make_subplots(
        rows=len(rows),
        cols=1,
        shared_xaxes=True,
        subplot_titles=titles,
        row_heights=[height / sum(heights) for height in heights],
        vertical_spacing=spacing,
    )
    drawing = _Ladder(figure, summary, elapsed, elapsed(timeline.ended))
    for row, places in enumerate(rows.values(), start=1):
        drawing.bracket(row, places, timeline)
    drawn_trials = sum(len(places) for places in rows.values())
    total = len({attempt.trial for attempt in timeline.attempts})
    apply_style(figure, height=inside + 150)
    figure.update_layout(legend={"orientation": "h", "y": -45 / inside, "yanchor": "top"}, margin={"t": 40})
    figure.update_xaxes(title_text=f"{unit} since the first trial began", row=len(rows), col=1)
    return Figure(
        title,
        "A line is a trial in training, in the shade of the rung that it trains for; a thin line is a "
        "pause, in which it holds no worker. "
        "The marks show what was decided at a rung and how attempts ended.",
        figure,
        not_drawn(missing(drawn_trials, total, f"trials; {style.SAMPLED}")),
    )


class _Ladder:
    """Draws the brackets one by one, with one legend for all: it lists each kind of line and mark once."""

    def __init__(
        self, figure: Any, summary: SweepSummary, elapsed: Callable[[datetime], float], end: float
    ) -> None:
        self._figure = figure
        self._summary = summary
        self._elapsed = elapsed
        self._end = end
        self._epochs = {(rung.bracket, rung.rung): rung.epochs for rung in summary.rungs}
        self._shades = shades(list(self._epochs.values()))
        self._named: set[str] = set()

    def bracket(self, row: int, places: dict[int, int], timeline: Timeline) -> None:
        lines: dict[tuple[int, bool], list[tuple[float, float, int]]] = defaultdict(list)
        waits: list[tuple[float, float, int]] = []
        marks: dict[str, list[tuple[float, int, str]]] = defaultdict(list)
        passed: dict[tuple[int, int], list[Milestone]] = defaultdict(list)
        for milestone in timeline.milestones:
            passed[milestone.trial, milestone.attempt].append(milestone)
        ended_before: dict[int, tuple[Attempt, float]] = {}
        for attempt in timeline.attempts:
            if attempt.trial not in places:
                continue
            key = trial_key(self._summary.sweep, attempt.trial)
            place = places[attempt.trial]
            at = self._elapsed(attempt.began)
            if attempt.trial in ended_before:
                before, since = ended_before[attempt.trial]
                waits.append((since, at, place))
                if before.outcome == "pause" and not attempt.audit:
                    marks["promoted from its pause"].append((at, place, f"{key}<br>resumed"))
            since = at
            rung = attempt.rung
            for milestone in passed[attempt.trial, attempt.attempt]:
                reached = self._elapsed(milestone.at)
                lines[self._epochs[attempt.bracket, milestone.rung], attempt.audit].append(
                    (since, reached, place)
                )
                text = f"{key}<br>{milestone.decision} after {count_of(milestone.epochs, 'epoch')}"
                if milestone.value is not None:
                    text += f", {self._summary.objective} {milestone.value:.4g}"
                marks[_MARK_OF[milestone.decision]].append((reached, place, text))
                since = reached
                rung = milestone.rung + 1
            end = self._end
            if attempt.ended:
                end = self._elapsed(attempt.ended)
            if end > since and (attempt.bracket, rung) in self._epochs:
                lines[self._epochs[attempt.bracket, rung], attempt.audit].append((since, end, place))
            if attempt.outcome in _ENDED_BETWEEN_RUNGS:
                marks[_ENDED_BETWEEN_RUNGS[attempt.outcome]].append(
                    (end, place, f"{key}<br>attempt {attempt.attempt} ended")
                )
            ended_before[attempt.trial] = (attempt, end)
        if waits:
            self._lines(row, "waiting", waits, {"color": style.FAINT, "width": 1})
        for (epochs, audit), parts in sorted(lines.items()):
            name = f"to {count_of(epochs, 'epoch')}"
            color = self._shades[epochs]
            if audit:
                name = "trained for the audit"
                color = style.AUDIT
            self._lines(row, name, parts, {"color": color, "width": 4})
        for name, look in _MARKS.items():
            if name in marks:
                dots(
                    self._figure,
                    marks[name],
                    marker=look,
                    hovertemplate="%{text}<extra></extra>",
                    **self._in_legend(row, name),
                )
        self._axis(row, places)

    def _lines(
        self, row: int, name: str, parts: Sequence[tuple[float, float, int]], line: dict[str, Any]
    ) -> None:
        x = [time for since, until, _ in parts for time in (since, until, None)]
        y = [end for _, _, place in parts for end in (place, place, None)]
        self._figure.add_scatter(
            x=x, y=y, mode="lines", line=line, hoverinfo="skip", **self._in_legend(row, name)
        )

    def _in_legend(self, row: int, name: str) -> dict[str, Any]:
        first = name not in self._named
        self._named.add(name)
        return {"name": name, "legendgroup": name, "showlegend": first, "row": row, "col": 1}

    def _axis(self, row: int, places: dict[int, int]) -> None:
        every = max(1, len(places) // 12)
        ticks = {place: f"{trial:04d}" for trial, place in places.items() if place % every == 0}
        self._figure.update_yaxes(
            title_text="trial",
            tickvals=list(ticks),
            ticktext=list(ticks.values()),
            range=[len(places) - 0.3, -0.7],
            showgrid=False,
            zeroline=False,
            row=row,
            col=1,
        )


_MARKS: dict[str, dict[str, Any]] = {
    "promoted in place": {"symbol": "triangle-right", "size": 8, "color": style.ACCENT},
    "promoted from its pause": {"symbol": "triangle-up", "size": 9, "color": style.ACCENT},
    "paused": {"symbol": "line-ns", "size": 7, "line": {"width": 2, "color": "#718096"}},
    "stopped": {"symbol": "square", "size": 7, "color": "#718096"},
    "completed": {"symbol": "star", "size": 11, "color": style.GOOD},
    "failed": {"symbol": "x", "size": 8, "color": style.BAD},
    "crashed, retried": {"symbol": "x-thin", "size": 8, "line": {"width": 2, "color": style.BAD}},
    "preempted": {"symbol": "circle-open", "size": 8, "line": {"width": 2, "color": style.AUDIT}},
    "out of memory, retried": {
        "symbol": "circle-x-open",
        "size": 8,
        "line": {"width": 2, "color": style.BAD},
    },
    "went on with other resources": {
        "symbol": "diamond-tall-open",
        "size": 8,
        "line": {"width": 2, "color": style.ACCENT},
    },
    "given back": {"symbol": "diamond-open", "size": 8, "line": {"width": 2, "color": style.AUDIT}},
}
_MARK_OF = {
    "continue": "promoted in place",
    "pause": "paused",
    "stop": "stopped",
    "complete": "completed",
    "fail": "failed",
    "requeue": "promoted in place",
}
_ENDED_BETWEEN_RUNGS = {
    "retry": "crashed, retried",
    "preempted": "preempted",
    "halved": "out of memory, retried",
    "requeue": "given back",
    "resized": "went on with other resources",
}


def _climbers(timeline: Timeline) -> dict[int, dict[int, int]]:
    """The trials to draw for each bracket: those that reached the highest rungs, and a sample of the others.

    Returns:
        By bracket, the place of each trial in the bracket's panel: from 0 at the top, ordered by number.
    """
    reached = Counter({attempt.trial: attempt.rung for attempt in timeline.attempts})
    for milestone in timeline.milestones:
        reached[milestone.trial] = max(reached[milestone.trial], milestone.rung + 1)
    of_bracket: dict[int, set[int]] = defaultdict(set)
    for attempt in timeline.attempts:
        of_bracket[attempt.bracket].add(attempt.trial)
    drawn = {
        bracket: sorted(
            spread(sorted(trials, key=lambda trial: (-reached[trial], trial)), _LINES // len(of_bracket))
        )
        for bracket, trials in sorted(of_bracket.items())
    }
    return {
        bracket: {trial: place for place, trial in enumerate(trials)} for bracket, trials in drawn.items()
    }


def _ladder_of(summary: SweepSummary, bracket: int) -> str:
    epochs = [str(rung.epochs) for rung in summary.rungs if rung.bracket == bracket]
    if len(epochs) > 8:
        epochs = [*epochs[:3], "…", epochs[-1]]
    return f"rungs at {', '.join(epochs)} epochs"
