"""The report as people see it: one self-contained HTML page, and a Markdown preview for Dagster's UI."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from halving.cli.output import duration
from resources.analysis.summary import SweepSummary, outcome
from resources.analysis.time_spent import SHARES
from resources.analysis.timeline import Timeline
from resources.evaluation.answers import Figure as GivenFigure
from resources.evaluation.figures import judgement, ladder, model, search
from resources.evaluation.figures.params import ParamFigures
from resources.evaluation.figures.style import Figure, drawn
from resources.evaluation.looks import WORN_FROM
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.base import listed
from resources.sweep_spec.space import choice_name

_TRIALS = 200  # rows in the table of all trials
_FAILURES = 20  # tracebacks of failed trials
_BOUNDS = 4  # bounded metrics that get a figure
_PLOTLY = {"displaylogo": False, "responsive": True}


@dataclass(frozen=True)
class Shown:
    """What the page draws in addition to the report's data.

    Attributes:
        curves: rows ``run, step, value`` of the objective, for the leading trials.
        given: figures that an evaluator gave.
    """

    spec: SweepSpec
    summary: SweepSummary
    timeline: Timeline
    curves: list[dict[str, Any]]
    given: Sequence[GivenFigure] = ()


def render_page(report: dict[str, Any], shown: Shown) -> str:
    """The whole report as one HTML file that needs no network (Plotly's script is inside).

    Args:
        report: the report's data; ``winner`` is None when no trial has a result.
    """
    from plotly.offline import get_plotlyjs

    summary = shown.summary
    return _template("report.html").render(
        report=report,
        verdict=_verdict(report),
        summary=summary,
        sections=_sections(report, shown),
        rungs=search.rung_table(summary),
        searching=summary.status == "searching",
        params=[
            name
            for name in shown.spec.space
            if any(name in standing.params for standing in summary.standings)
        ],
        others=[objective["metric"] for objective in summary.objectives[1:]]
        + [name for name in summary.bounds if name != summary.objective],
        standings=summary.standings[:_TRIALS],
        failed=summary.failed[:_FAILURES],
        replay=_replay_hint(report, shown),
        plotly=get_plotlyjs(),
        worn_from=WORN_FROM,
        headline=_headline(report) if report["winner"] else "",
    )


def _sections(report: dict[str, Any], shown: Shown) -> dict[str, list[dict[str, str]]]:
    """The figures of each section, as the template takes them: title, reading, html, left_out."""
    summary = shown.summary
    timeline = shown.timeline
    params = ParamFigures(shown.spec, summary, timeline)
    several = len(summary.objectives) > 1
    bounded = list(summary.bounds)[:_BOUNDS]
    found: dict[str, list[Figure]] = {
        "search": [
            *drawn("Optimisation history", search.history, summary, timeline),
            *drawn("Learning curves", model.learning_curves, report["summary"], shown.curves),
            *drawn("What was stopped, and where", search.rungs, summary),
            *drawn("Rung ladder", ladder.ladder, summary, timeline),
        ],
        "pareto": drawn("Pareto front", params.pareto) if several else [],
        "bounds": [
            figure for name in bounded for figure in drawn(f"Bound on {name}", search.bounds, summary, name)
        ],
        # Importances come first: they decide which parameters the other figures leave out.
        "params": [
            *drawn("Hyperparameter importances", params.importances),
            *drawn("Parallel coordinates", params.parallel),
            *drawn("Slices", params.slices),
        ],
        "model": _of_model(report, shown),
        "slices": _of_slices(report),
    }
    if summary.best is None:
        found["params"] = []
        found["pareto"] = []
        found["bounds"] = []
    return {section: [_html(figure) for figure in figures] for section, figures in found.items()}


def _of_slices(report: dict[str, Any]) -> list[Figure]:
    if not report["winner"]:
        return []
    metric = report["main_metric"]
    slices = report["slices"]
    if not any(metric in group["metrics"] for one in slices for group in one["groups"]):
        return []
    return drawn("Slices", judgement.slice_intervals, slices, metric, report["metrics"][metric])


def _of_model(report: dict[str, Any], shown: Shown) -> list[Figure]:
    if not report["winner"]:
        return []
    found: list[Figure] = []
    if report["confusion"]:
        found += drawn("Confusion matrix", model.confusion, report)
    if report["calibration"]:
        found += drawn("Calibration", judgement.reliability, report["calibration"])
    if report["residuals"]:
        found += drawn(
            "Residuals",
            judgement.residual_plot,
            report["residuals"],
            report["snapshot"]["splits"][report["split"]],
        )
    return [
        *found,
        *(figure for given in shown.given for figure in drawn(given.title, judgement.given_figure, given)),
    ]


def _html(figure: Figure) -> dict[str, str]:
    from plotly.io import to_html

    drawing = figure.drawing()
    html = (
        to_html(drawing, full_html=False, include_plotlyjs=False, config=_PLOTLY, validate=False)
        if drawing
        else ""
    )
    return {"title": figure.title, "reading": figure.reading, "html": html, "left_out": figure.left_out}


def _replay_hint(report: dict[str, Any], shown: Shown) -> str:
    """A command that replays other strategies on this sweep's curves; empty where that would say nothing."""
    summary = shown.summary
    strategy = shown.spec.strategy
    if len(summary.objectives) > 1 or summary.best is None or shown.spec.budgets[-1] < 3:
        return ""
    audit = report["audit"]
    budget = audit["raise_to"] if audit and audit["raise_to"] else max(1, shown.spec.budgets[-1] // 9)
    other = "hyperband" if strategy.name != "hyperband" else "median"
    return f"halving replay {summary.sweep} --strategy 'asha: {{min_budget: {budget}}}' --strategy {other}"


def render_preview(report: dict[str, Any], path: str) -> str:
    """A screenful of Markdown: the result, the champion, the leading trials, what early stopping saved."""
    return _template("preview.md").render(
        report=report,
        summary=report["summary"],
        path=path,
        headline=_headline(report),
        verdict=_verdict(report),
    )


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("resources.evaluation", "templates"),
        autoescape=name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "within": within,
        "bytes": megabytes,
        "percent": lambda share: f"{100 * share:.0f} %",
        "duration": duration,
    }
    environment.globals |= {"outcome": outcome, "time_shares": SHARES}
    return environment.get_template(name)


def number(value: Any) -> str:
    """A value as tables show it: whole numbers and texts as they are, other numbers short, lists and mappings
    by their names.
    """
    if value is None:
        return "null"
    if isinstance(value, list | dict):
        return str(choice_name(value))
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    return f"{value:.4f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.3g}"


def within(interval: dict[str, Any] | None) -> str:
    """An interval as tables show it; nothing where there is none."""
    if not interval or interval["low"] is None or not math.isfinite(interval["low"]):
        return ""
    return f"{number(interval['low'])} to {number(interval['high'])}"


def megabytes(size: int | None) -> str:
    """A size in MB or KB."""
    if size is None:
        return "unknown"
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} KB"


def _headline(report: dict[str, Any]) -> str:
    shown = [f"{name} {number(value)}" for name, value in report["metrics"].items()]
    return f"{', '.join(shown)} on the {report['split']} split"


def _verdict(report: dict[str, Any]) -> str:
    """What the gates say together, in a sentence; empty where none was judged."""
    gates = report.get("gates") or []
    failed = [gate["name"].replace("_", " ") for gate in gates if gate["outcome"] == "fail"]
    unsure = [gate["name"].replace("_", " ") for gate in gates if gate["outcome"] == "too little evidence"]
    if failed:
        return f"Not promoted: {listed(dict.fromkeys(failed))} failed."
    if unsure:
        return f"Promotion is held back: too little evidence for {listed(dict.fromkeys(unsure))}."
    return "All gates passed." if gates else ""
