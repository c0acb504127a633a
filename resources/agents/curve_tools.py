"""Tools about curves: what stands out in them, and their points."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from halving.errors import InvalidInput, NotFound
from halving.query.api import curve_rows
from halving.query.curve_stats import keys_of
from halving.query.curve_summary import CurveSummary, read_summaries
from halving.query.curve_table import CurveRows
from halving.query.directions import Direction
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import in_threads
from halving.text import comma_list, did_you_mean
from resources.agents.arguments import Argument, Tool
from resources.agents.budget import Reply
from resources.agents.desk import Desk
from resources.agents.marking import clean, match_name, number
from resources.analysis.run_index.project_names import with_all_names
from resources.analysis.run_index.reading import reading
from resources.analysis.run_index.select import select_names

MAX_CURVES = 200
MAX_POINTS = 300
_THREADS = 4
_Row = tuple[str, str, CurveSummary]


def curve_summary(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Summarize curves, the best first where they can be ranked, else those with trouble first."""
    runs = _runs_of(desk, asked_for["runs"])
    direction: Direction | None = asked_for["direction"] or None
    wanted = [name for name in (name.strip() for name in asked_for["metrics"].split(",")) if name]

    def of_run(pair: tuple[str, str]) -> list[_Row]:
        summaries = read_summaries(desk.store, *pair, wanted, direction)
        if len(summaries) < len(wanted) or not wanted:
            # Looking for the names takes as long as reading a long curve, and is mostly not needed.
            names = _names_of(keys_of(desk.store, *pair), wanted)
            summaries = read_summaries(desk.store, *pair, names[:MAX_CURVES], direction)
        return [("/".join(pair), key, summary) for key, summary in summaries.items()]

    rows = [row for part in in_threads(of_run, runs, _THREADS) for row in part]
    if not rows:
        _refuse_without_curves(desk, runs, wanted)
    ranked = len({key for _, key, _ in rows}) == 1 and rows[0][2].direction is not None
    order: Callable[[_Row], tuple[Any, ...]] = _trouble
    if ranked:
        order = _rank
        reply.add(f"{clean(rows[0][1])}, best first ({rows[0][2].direction}):")
    rows.sort(key=order)
    offset = asked_for["offset"]
    lines = [_line(run, key, summary, len(runs) > 1, ranked) for run, key, summary in rows]
    reply.add_rows(lines[offset:], "curves", lambda added: f"ask with offset={offset + added}")


def points(desk: Desk, reply: Reply, asked_for: Mapping[str, Any]) -> None:
    """Give a curve's points in a window of steps, or buckets where there are more than fit."""
    project, run = desk.run(asked_for["run"])
    low = asked_for["low"]
    high = asked_for["high"]
    if low > high:
        raise InvalidInput(f"low = {low} is not accepted: give at most high = {high}")

    def read(key: str) -> list[CurveRows]:
        return curve_rows(
            f"{project}/{run}",
            key,
            root=desk.store,
            max_points=asked_for["limit"],
            window=(low, high),
            known_keys=False,
        )

    curves = read(asked_for["metric"])
    if not curves:
        key = match_name(asked_for["metric"], keys_of(desk.store, project, run))
        if key is None:
            _refuse_without_curves(desk, [(project, run)], [asked_for["metric"]])
        curves = read(str(key))
    if not curves:
        reply.add("no points in this window")
        return
    [curve] = curves
    single = bool((curve.count == 1).all())
    if single:
        reply.add("step:value")
        cells = [
            f"{step}:{number(value)}"
            for step, value in zip(curve.step.tolist(), curve.value.tolist(), strict=True)
        ]
    else:
        reply.add("first step of a bucket:mean[min..max]xpoints; a narrower low..high gives points")
        cells = [
            f"{step}:{number(mean)}[{number(low)}..{number(high)}]x{count}"
            for step, mean, low, high, count in zip(
                *(column.tolist() for column in (curve.step, curve.value, curve.min, curve.max, curve.count)),
                strict=True,
            )
        ]
    steps = curve.step.tolist()
    lines = [" ".join(cells[place : place + 10]) for place in range(0, len(cells), 10)]
    reply.add_rows(
        lines, "lines of ten", lambda added: f"ask with low={steps[min(10 * added, len(steps) - 1)]}"
    )


def _names_of(keys: list[str], wanted: list[str]) -> list[str]:
    """The metrics that names mean; without names all but those of the machine."""
    if not wanted:
        return [key for key in keys if not key.startswith("system/")]
    return [name for name in (match_name(name, keys) for name in wanted) if name]


def _runs_of(desk: Desk, text: str) -> list[tuple[str, str]]:
    """The runs that a text names, or those of a filter."""
    names = [name.strip() for name in text.split(",")]
    if not any(letter in text for letter in "=<>") and " " not in text.strip().replace(", ", ","):
        return list(dict.fromkeys(desk.run(name) for name in names if name))
    chosen = parse_filter(text, now=datetime.now(UTC).replace(microsecond=0))
    with reading(desk.catalog) as session:
        return select_names(
            session,
            with_all_names(session, chosen),
            projects=desk.agent.visible_projects,
            limit=MAX_CURVES,
        )


def _line(run: str, key: str, summary: CurveSummary, several: bool, ranked: bool) -> str:
    subject = clean(key)
    if several and ranked:
        subject = run
    elif several:
        subject = f"{run} {subject}"
    return f"{subject}: {summary.text()}"


def _rank(row: _Row) -> tuple[float, str]:
    """The order of curves of one metric: the best value first, curves without any last."""
    best = row[2].best
    if best is None:
        return math.inf, row[0]
    if row[2].direction == "maximize":
        return -best.value, row[0]
    return best.value, row[0]


def _trouble(row: _Row) -> tuple[bool, bool, float, str, str]:
    """The order of curves of several metrics: NaN first, then the largest spikes."""
    summary = row[2]
    score = max((spike.score for spike in summary.spikes), default=0.0)
    return summary.nonfinite_to_end is None, not summary.nonfinite, -score, row[0], row[1]


def _refuse_without_curves(desk: Desk, runs: list[tuple[str, str]], wanted: list[str]) -> None:
    if not runs:
        raise NotFound("no runs: the filter chooses none")
    keys = keys_of(desk.store, *runs[0])
    if not wanted:
        raise NotFound("these runs have no points yet")
    names = [clean(key) for key in keys]
    raise NotFound(
        f"no metric {wanted[0]!r}{did_you_mean(wanted[0], names)}; there are {comma_list(names[:20])}"
    )


TOOLS = (
    Tool(
        "curve_summary",
        "A line for each curve: n, first->last, best@step, trend of the last tenth (% per 1k steps), spikes, "
        "flat since, NaN, gaps, resumes. One metric: best run first; several: trouble first.",
        (
            Argument("runs", about="project/run, with commas, or a filter as in find_runs"),
            Argument("metrics", about="with commas; empty: all", default=""),
            Argument("direction", default="", choices=("minimize", "maximize")),
            Argument("offset", "integer", default=0),
        ),
        curve_summary,
    ),
    Tool(
        "points",
        "Points of a curve between two steps; min and max of buckets where there are more.",
        (
            Argument("run", about="project/run"),
            Argument("metric"),
            Argument("low", "integer", default=0, low=-(2**53)),
            Argument("high", "integer", default=2**53, low=-(2**53)),
            Argument("limit", "integer", default=60, low=1, high=MAX_POINTS),
        ),
        points,
    ),
)
