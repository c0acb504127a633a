"""The rung ladder: which trials were promoted, paused or stopped, and when."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from resources.analysis.attempts import Attempt
from resources.analysis.summary import SweepSummary
from resources.analysis.timeline import Milestone, Timeline
from resources.catalog.trial_key import trial_key
from resources.evaluation.figures.style import (
    ACCENT,
    AUDIT,
    BAD,
    FAINT,
    GOOD,
    SAMPLED,
    Axes,
    Figure,
    clock,
    in_epochs,
    not_drawn,
    shades,
    spread,
    styled,
)

_LINES = 400  # trials drawn, of all brackets together
_GAP = 60  # pixels between two brackets


def ladder(summary: SweepSummary, timeline: Timeline) -> Figure:
    """Every trial as a line in time, darker at higher rungs, with what was decided at each rung; a panel for each bracket."""
    from plotly.subplots import make_subplots

    title = "Rung ladder"
    if not timeline.attempts or not timeline.began or not timeline.ended:
        return Figure("ladder", title, "No attempt at a trial was recorded.", None)
    elapsed, unit = clock(timeline.began, timeline.ended)
    brackets = sorted({attempt.bracket for attempt in timeline.attempts})
    chosen = _climbers(timeline, _LINES // len(brackets))
    rows = {bracket: {trial: place for place, trial in enumerate(chosen[bracket])} for bracket in brackets}
    heights = [60 + min(560, 7 * len(rows[bracket])) for bracket in brackets]
    titles = [f"bracket {bracket + 1}: {_ladder_of(summary, bracket)}" for bracket in brackets] if len(brackets) > 1 else None
    inside = sum(heights) + _GAP * (len(brackets) - 1)
    figure = make_subplots(
        rows=len(brackets),
        cols=1,
        shared_xaxes=True,
        subplot_titles=titles,
        row_heights=[height / sum(heights) for height in heights],
        vertical_spacing=_GAP / inside if len(brackets) > 1 else 0,
    )
    drawing = _Ladder(figure, summary, elapsed, elapsed(timeline.ended))
    for row, bracket in enumerate(brackets, start=1):
        drawing.bracket(row, rows[bracket], timeline)
    total = sum(len({attempt.trial for attempt in timeline.attempts if attempt.bracket == bracket}) for bracket in brackets)
    shown = sum(len(places) for places in rows.values())
    styled(figure, Axes("", "", inside + 150))
    figure.update_layout(legend={"orientation": "h", "y": -45 / inside, "yanchor": "top"}, margin={"t": 40})
    figure.update_xaxes(title_text=f"{unit} since the first trial began", row=len(brackets), col=1)
    return Figure(
        "ladder",
        title,
        "A line is a trial in training, in the shade of the rung that it trains for; a thin line is a pause, in which it holds no worker. "
        "The marks show what was decided at a rung and how attempts ended.",
        figure,
        not_drawn([f"{total - shown} of {total} trials; {SAMPLED}"] if shown < total else []),
    )


class _Ladder:
    """Draws the brackets one by one; each kind of line and mark is in the legend once."""

    def __init__(self, figure: Any, summary: SweepSummary, elapsed: Callable[[datetime], float], end: float) -> None:
        self._figure, self._summary, self._elapsed, self._end = figure, summary, elapsed, end
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
            place, at = places[attempt.trial], self._elapsed(attempt.began)
            if attempt.trial in ended_before:
                before, since = ended_before[attempt.trial]
                waits.append((since, at, place))
                if before.outcome == "pause" and not attempt.audit:
                    marks["promoted from its pause"].append((at, place, self._hover(attempt.trial, "resumed")))
            since, rung = at, attempt.rung
            for milestone in passed[attempt.trial, attempt.attempt]:
                reached = self._elapsed(milestone.at)
                lines[self._epochs[attempt.bracket, milestone.rung], attempt.audit].append((since, reached, place))
                text = f"{milestone.decision} after {in_epochs(milestone.epochs)}"
                text += f", {self._summary.objective} {milestone.value:.4g}" if milestone.value is not None else ""
                marks[_MARK_OF[milestone.decision]].append((reached, place, self._hover(attempt.trial, text)))
                since, rung = reached, milestone.rung + 1
            end = self._elapsed(attempt.ended) if attempt.ended else self._end
            if end > since and (attempt.bracket, rung) in self._epochs:
                lines[self._epochs[attempt.bracket, rung], attempt.audit].append((since, end, place))
            if attempt.outcome in _ENDED_BETWEEN_RUNGS:
                marks[_ENDED_BETWEEN_RUNGS[attempt.outcome]].append(
                    (end, place, self._hover(attempt.trial, f"attempt {attempt.attempt} ended"))
                )
            ended_before[attempt.trial] = (attempt, end)
        self._lines(row, "waiting", waits, {"color": FAINT, "width": 1})
        for (epochs, audit), parts in sorted(lines.items()):
            name = "trained for the audit" if audit else f"to {in_epochs(epochs)}"
            self._lines(row, name, parts, {"color": AUDIT if audit else self._shades[epochs], "width": 4})
        for name, look in _MARKS.items():
            self._marks(row, name, marks.get(name, []), look)
        self._axis(row, places)

    def _hover(self, trial: int, what: str) -> str:
        return f"{trial_key(self._summary.sweep, trial)}<br>{what}"

    def _lines(self, row: int, name: str, parts: Sequence[tuple[float, float, int]], line: dict[str, Any]) -> None:
        if not parts:
            return
        x = [moment for since, until, _ in parts for moment in (since, until, None)]
        y = [place if known is not None else None for _, _, place in parts for known in (0, 0, None)]
        self._figure.add_scatter(
            x=x, y=y, mode="lines", name=name, line=line, hoverinfo="skip", legendgroup=name, showlegend=self._once(name), row=row, col=1
        )

    def _marks(self, row: int, name: str, parts: Sequence[tuple[float, int, str]], look: dict[str, Any]) -> None:
        if not parts:
            return
        self._figure.add_scatter(
            x=[moment for moment, _, _ in parts],
            y=[place for _, place, _ in parts],
            text=[text for _, _, text in parts],
            mode="markers",
            name=name,
            marker=look,
            hovertemplate="%{text}<extra></extra>",
            legendgroup=name,
            showlegend=self._once(name),
            row=row,
            col=1,
        )

    def _once(self, name: str) -> bool:
        first = name not in self._named
        self._named.add(name)
        return first

    def _axis(self, row: int, places: dict[int, int]) -> None:
        every = max(1, len(places) // 12)
        ticks = [(place, f"{trial:04d}") for trial, place in places.items() if place % every == 0]
        self._figure.update_yaxes(
            title_text="trial",
            tickvals=[place for place, _ in ticks],
            ticktext=[text for _, text in ticks],
            range=[len(places) - 0.3, -0.7],
            showgrid=False,
            zeroline=False,
            row=row,
            col=1,
        )


_MARKS: dict[str, dict[str, Any]] = {
    "promoted in place": {"symbol": "triangle-right", "size": 8, "color": ACCENT},
    "promoted from its pause": {"symbol": "triangle-up", "size": 9, "color": ACCENT},
    "paused": {"symbol": "line-ns", "size": 7, "line": {"width": 2, "color": "#718096"}},
    "stopped": {"symbol": "square", "size": 7, "color": "#718096"},
    "completed": {"symbol": "star", "size": 11, "color": GOOD},
    "failed": {"symbol": "x", "size": 8, "color": BAD},
    "crashed, retried": {"symbol": "x-thin", "size": 8, "line": {"width": 2, "color": BAD}},
    "preempted": {"symbol": "circle-open", "size": 8, "line": {"width": 2, "color": AUDIT}},
    "given back": {"symbol": "diamond-open", "size": 8, "line": {"width": 2, "color": AUDIT}},
}
_MARK_OF = {
    "continue": "promoted in place",
    "pause": "paused",
    "stop": "stopped",
    "complete": "completed",
    "fail": "failed",
    "requeue": "promoted in place",
}
_ENDED_BETWEEN_RUNGS = {"retry": "crashed, retried", "preempted": "preempted", "requeue": "given back"}


def _climbers(timeline: Timeline, limit: int) -> dict[int, list[int]]:
    """The trials to draw in each bracket, by number: those that reached the highest rungs, and an even sample of the others."""
    reached = Counter({attempt.trial: attempt.rung for attempt in timeline.attempts})
    for milestone in timeline.milestones:
        reached[milestone.trial] = max(reached[milestone.trial], milestone.rung + 1)
    of_bracket: dict[int, set[int]] = defaultdict(set)
    for attempt in timeline.attempts:
        of_bracket[attempt.bracket].add(attempt.trial)
    return {
        bracket: sorted(spread(sorted(trials, key=lambda trial: (-reached[trial], trial)), limit)) for bracket, trials in of_bracket.items()
    }


def _ladder_of(summary: SweepSummary, bracket: int) -> str:
    epochs = [str(rung.epochs) for rung in summary.rungs if rung.bracket == bracket]
    shown = epochs if len(epochs) <= 8 else [*epochs[:3], "…", epochs[-1]]
    return f"rungs at {', '.join(shown)} epochs"
