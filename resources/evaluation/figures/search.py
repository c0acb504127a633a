"""Figures of a search: results over time, how far trials got, and which are within bounds."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from halving.text import count_of
from resources.analysis.summary import RungSummary, SweepSummary
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
    without_outliers,
)
from resources.search.spread import spread

_RESULTS = 4000  # drawn in the history
_BARS = 40  # rungs of a bracket


def history(summary: SweepSummary, timeline: Timeline) -> Figure:
    """Draw every result over time, with the leader's result as a line."""
    from plotly import graph_objects as go

    title = "Optimisation history"
    results = [milestone for milestone in timeline.milestones if milestone.value is not None]
    if not results or not timeline.began or not timeline.ended:
        return Figure(title, "No trial has a result.")
    elapsed, unit = clock(timeline.began, timeline.ended)
    leaders = _leaders(results, summary.direction == "maximize")
    kept = _few_results(results, leaders)
    figure = go.Figure()
    color = shades([milestone.epochs for milestone in results])
    groups: dict[tuple[int, str], list[Milestone]] = defaultdict(list)
    for milestone in kept:
        if milestone.violation > 0:
            groups[0, "out of bounds"].append(milestone)
        else:
            kind = ""
            if milestone.audit:
                kind = "audit"
            groups[milestone.epochs, kind].append(milestone)
    for (epochs, kind), group in sorted(groups.items(), key=lambda entry: (entry[0][0] == 0, entry[0])):
        if not epochs:
            name = kind
            shade = style.BAD
            symbol = "x-thin-open"
        elif kind:
            name = f"{count_of(epochs, 'epoch')}, {kind}"
            shade = color[epochs]
            symbol = "circle-open"
        else:
            name = count_of(epochs, "epoch")
            shade = color[epochs]
            symbol = "circle"
        dots(
            figure,
            [
                (
                    elapsed(result.at),
                    result.value,
                    f"{trial_key(summary.sweep, result.trial)}, {count_of(result.epochs, 'epoch')}",
                )
                for result in group
            ],
            name=name,
            marker={"color": shade, "size": 7, "symbol": symbol},
            hovertemplate=f"%{{text}}<br>{summary.objective} %{{y}}<extra></extra>",
        )
    figure.add_scatter(
        x=[elapsed(leader.at) for leader in leaders] + [elapsed(timeline.ended)],
        y=[leader.value for leader in leaders] + [leaders[-1].value],
        mode="lines",
        line={"color": style.BAD, "width": 2, "shape": "hv"},
        name="leader",
        hovertemplate="the leader: %{y}<extra></extra>",
    )
    apply_style(figure, f"{unit} since the first trial began", summary.objective)
    cut = without_outliers(
        figure, [result.value for result in kept if result.value is not None], summary.direction == "maximize"
    )
    return Figure(
        title,
        f"Each point is a result at a rung, darker after more epochs; {summary.direction} "
        f"{summary.objective}. The line is the leader at that moment: a trial within bounds leads one out of "
        "bounds, and more epochs lead fewer, so the line may step back when a longer training takes the "
        "lead.",
        figure,
        not_drawn(missing(len(kept), len(results), "results"), cut),
    )


def rungs(summary: SweepSummary) -> Figure:
    """Draw how many trials reached each rung, and what happened to them there."""
    from plotly import graph_objects as go

    title = "What was stopped, and where"
    reached = sum(rung.reached > 0 for rung in summary.rungs)
    kept = rung_table(summary)
    if not reached:
        return Figure(title, "No trial reached a rung.")
    paused_here = "paused here"
    if summary.status != "searching":
        paused_here = "stopped here"
    figure = go.Figure()
    parts = {
        "promoted": (style.ACCENT, [rung.promoted for rung in kept]),
        "completed": (style.GOOD, [rung.completed for rung in kept]),
        paused_here: (style.QUIET, [rung.paused for rung in kept]),
        "stopped for good": ("#718096", [rung.stopped for rung in kept]),
        "failed": (style.BAD, [rung.failed for rung in kept]),
    }
    names: Any = [count_of(rung.epochs, "epoch") for rung in kept]
    if summary.brackets > 1:
        names = [[f"bracket {rung.bracket + 1}" for rung in kept], names]
    for name, (color, counts) in parts.items():
        if any(counts):
            figure.add_bar(
                x=names,
                y=counts,
                name=name,
                marker={"color": color},
                hovertemplate=f"%{{y}} {name}<extra></extra>",
            )
    figure.update_layout(barmode="stack", bargap=0.35)
    return Figure(
        title,
        "Each bar is a rung: of the trials that reached it, the blue part was promoted, the grey part "
        "pruned, and the green part is done.",
        apply_style(figure, y="trials"),
        not_drawn(missing(len(kept), reached, "rungs")),
    )


def bounds(summary: SweepSummary, metric: str) -> Figure:
    """Draw the objective over a bounded metric, for trials within and out of bounds."""
    from plotly import graph_objects as go

    title = f"Bound on {metric}"
    with_metric = [standing for standing in summary.standings if metric in standing.metrics]
    if not with_metric:
        return Figure(title, f"No trial reported {metric}.")
    figure = go.Figure()
    drawn = 0
    for name, out, color, symbol in (
        ("within all bounds", False, style.ACCENT, "circle"),
        ("out of bounds", True, style.BAD, "x"),
    ):
        group = [standing for standing in with_metric if (standing.violation > 0) == out]
        some = spread(group, _RESULTS // 2)
        drawn += len(some)
        dots(
            figure,
            [(standing.metrics[metric], standing.objective, standing.key) for standing in some],
            name=f"{name} ({len(group)})",
            marker={"color": color, "size": 7, "symbol": symbol, "opacity": 0.75},
            hovertemplate=f"%{{text}}<br>{metric} %{{x}}<br>{summary.objective} %{{y}}<extra></extra>",
        )
    for side, limit in summary.bounds[metric].items():
        figure.add_vline(
            x=limit,
            line={"color": style.BAD, "width": 1.5, "dash": "dash"},
            annotation_text=f"{side} {limit:g}",
        )
    apply_style(figure, metric, summary.objective)
    cut = without_outliers(
        figure, [standing.objective for standing in with_metric], summary.direction == "maximize"
    )
    return Figure(
        title,
        "Each point is a trial at its highest rung; the dashed line is the bound. Trials beyond any bound "
        "rank last.",
        figure,
        not_drawn(missing(drawn, len(with_metric), "trials"), cut),
    )


def _leaders(results: Sequence[Milestone], maximize: bool) -> list[Milestone]:
    """The results that took the lead, in order of time."""

    def order(milestone: Milestone) -> tuple[bool, int, float]:
        loss = milestone.value or 0.0
        if maximize:
            loss = -loss
        return milestone.violation > 0, -milestone.epochs, loss

    leaders: list[Milestone] = []
    for milestone in results:
        if not leaders or order(milestone) < order(leaders[-1]):
            leaders.append(milestone)
    # A line that starts far out of bounds would squash the rest.
    return [leader for leader in leaders if leader.violation <= 0] or leaders


def _few_results(results: Sequence[Milestone], leaders: Sequence[Milestone]) -> list[Milestone]:
    """The leaders, the longest trainings, and an even sample of the rest."""
    if len(results) <= _RESULTS:
        return list(results)
    lead = {id(leader) for leader in leaders}
    ordered = sorted(results, key=lambda milestone: (id(milestone) not in lead, -milestone.epochs))
    return spread(ordered, _RESULTS)


def rung_table(summary: SweepSummary) -> list[RungSummary]:
    """The rungs that the page lists: those that a trial reached, at most 40 of each bracket."""
    brackets = [
        [rung for rung in summary.rungs if rung.reached and rung.bracket == bracket]
        for bracket in range(summary.brackets)
    ]
    return [rung for reached in brackets for rung in spread(reached, _BARS)]
