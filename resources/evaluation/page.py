"""The report as people see it: one self-contained HTML page, and a Markdown preview for Dagster's UI."""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from halving.cli.output import duration
from resources.analysis.summary import SweepSummary, outcome
from resources.analysis.timeline import Timeline
from resources.evaluation.figures import ladder, model, search
from resources.evaluation.figures.params import ParamFigures
from resources.evaluation.figures.style import Figure, drawn
from resources.sweep_spec import SweepSpec

_TRIALS = 200  # rows in the table of all trials
_FAILURES = 20  # tracebacks of failed trials
_BOUNDS = 4  # bounded metrics that get a figure
_PLOTLY = {"displaylogo": False, "responsive": True}


@dataclass(frozen=True)
class Shown:
    """What the page draws in addition to the report's data.

    Attributes:
        curves: rows ``run, step, value`` of the objective, for the leading trials.
    """

    spec: SweepSpec
    summary: SweepSummary
    timeline: Timeline
    curves: list[dict[str, Any]]


def render_page(report: dict[str, Any], shown: Shown) -> str:
    """The whole report as one HTML file that needs no network (Plotly's script is inside).

    Args:
        report: the report's data; ``winner`` is None when no trial has a result.
    """
    from plotly.offline import get_plotlyjs

    summary = shown.summary
    return _template("report.html").render(
        report=report,
        summary=summary,
        sections=_sections(report, shown),
        rungs=search.rung_table(summary),
        searching=summary.status == "searching",
        params=[name for name in shown.spec.space if any(name in standing.params for standing in summary.standings)],
        others=[objective["metric"] for objective in summary.objectives[1:]]
        + [name for name in summary.bounds if name != summary.objective],
        standings=summary.standings[:_TRIALS],
        failed=summary.failed[:_FAILURES],
        replay=_replay_hint(report, shown),
        plotly=get_plotlyjs(),
        headline=_headline(report) if report["winner"] else "",
    )


def _sections(report: dict[str, Any], shown: Shown) -> dict[str, list[dict[str, str]]]:
    """The figures of each section, as the template takes them: title, reading, html, left_out."""
    summary, timeline = shown.summary, shown.timeline
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
        "bounds": [figure for name in bounded for figure in drawn(f"Bound on {name}", search.bounds, summary, name)],
        # Importances come first: they decide which parameters the other figures leave out.
        "params": [
            *drawn("Hyperparameter importances", params.importances),
            *drawn("Parallel coordinates", params.parallel),
            *drawn("Slices", params.slices),
        ],
        "model": drawn("Confusion matrix", model.confusion, report) if report.get("confusion") else [],
    }
    if summary.best is None:
        found["params"], found["pareto"], found["bounds"] = [], [], []
    return {section: [_html(figure) for figure in figures] for section, figures in found.items()}


def _html(figure: Figure) -> dict[str, str]:
    drawing = figure.plot.to_html(full_html=False, include_plotlyjs=False, config=_PLOTLY) if figure.plot is not None else ""
    return {"title": figure.title, "reading": figure.reading, "html": drawing, "left_out": figure.left_out}


def _replay_hint(report: dict[str, Any], shown: Shown) -> str:
    """A command that replays other strategies on this sweep's curves; empty where that would say nothing."""
    summary, strategy = shown.summary, shown.spec.strategy
    if len(summary.objectives) > 1 or summary.best is None or shown.spec.budgets[-1] < 3:
        return ""
    audit = report["audit"]
    budget = audit["raise_to"] if audit and audit["raise_to"] else max(1, shown.spec.budgets[-1] // 9)
    other = "hyperband" if strategy.name != "hyperband" else "median"
    return f"halving replay {summary.sweep} --strategy 'asha: {{min_budget: {budget}}}' --strategy {other}"


def render_preview(report: dict[str, Any], path: str) -> str:
    """A screenful of Markdown: the result, the champion, the leading trials, what early stopping saved."""
    return _template("preview.md").render(report=report, summary=report["summary"], path=path, headline=_headline(report))


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
    environment.filters |= {"number": number, "percent": lambda share: f"{100 * share:.0f} %", "duration": duration}
    environment.globals["outcome"] = outcome
    return environment.get_template(name)


def number(value: Any) -> str:
    """A value as tables show it: whole numbers and texts as they are, other numbers short."""
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    return f"{value:.4f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.3g}"


def _headline(report: dict[str, Any]) -> str:
    shown = [f"{name} {number(value)}" for name, value in report["metrics"].items()]
    return f"{', '.join(shown)} on the {report['split']} split"
