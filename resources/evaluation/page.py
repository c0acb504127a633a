"""The report for people: one self-contained HTML page, and a Markdown preview for Dagster's UI."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from halving.text import comma_list, duration
from resources.analysis.summary import SweepSummary, outcome
from resources.analysis.time_spent import SHARES
from resources.analysis.timeline import Timeline
from resources.evaluation.figures import judgement, ladder, model, search
from resources.evaluation.figures.params import ParamFigures
from resources.evaluation.figures.style import Figure, draw_guarded
from resources.evaluation.predictor_messages import Figure as EvaluatorFigure
from resources.evaluation.split_wear import WORN_FROM
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.space import choice_name

_TRIALS = 200  # rows in the table of all trials
_FAILURES = 20  # tracebacks of failed trials
_BOUNDS = 4  # bounded metrics that get a figure
_PLOTLY = {"displaylogo": False, "responsive": True}


@dataclass(frozen=True)
class PageContent:
    """What the page shows in addition to the report's data.

    Attributes:
        curves: rows ``run, step, value`` of the objective, for the leading trials.
        evaluator_figures: figures that an evaluator gave.
    """

    spec: SweepSpec
    summary: SweepSummary
    timeline: Timeline
    curves: list[dict[str, Any]]
    evaluator_figures: Sequence[EvaluatorFigure] = ()


def render_page(report: dict[str, Any], content: PageContent) -> str:
    """Render the whole report as one HTML file that needs no network, with Plotly's script inside.

    Args:
        report: the report's data; ``winner`` is None when no trial has a result.
    """
    from plotly.offline import get_plotlyjs

    summary = content.summary
    params = {name for standing in summary.standings for name in standing.params}
    bounds = [name for name in summary.bounds if name != summary.objective]
    headline = ""
    if report["winner"]:
        headline = _headline(report)
    return _template("report.html").render(
        report=report,
        verdict=_verdict(report),
        summary=summary,
        sections=_sections(report, content),
        rungs=search.rung_table(summary),
        searching=summary.status == "searching",
        params=[name for name in content.spec.space if name in params],
        others=[*(objective["metric"] for objective in summary.objectives[1:]), *bounds],
        standings=summary.standings[:_TRIALS],
        failed=summary.failed[:_FAILURES],
        replay=_replay_hint(report, content),
        plotly=get_plotlyjs(),
        worn_from=WORN_FROM,
        headline=headline,
    )


def _sections(report: dict[str, Any], content: PageContent) -> dict[str, list[dict[str, str]]]:
    """The figures of each section, as the template takes them: title, reading, html, left_out."""
    summary = content.summary
    timeline = content.timeline
    params = ParamFigures(content.spec, summary, timeline)
    bounded = list(summary.bounds)[:_BOUNDS]
    figures_of: dict[str, list[Figure]] = {
        "search": [
            *draw_guarded("Optimisation history", search.history, summary, timeline),
            *draw_guarded("Learning curves", model.learning_curves, report["summary"], content.curves),
            *draw_guarded("What was stopped, and where", search.rungs, summary),
            *draw_guarded("Rung ladder", ladder.ladder, summary, timeline),
        ],
        "pareto": [],
        "bounds": [
            figure
            for name in bounded
            for figure in draw_guarded(f"Bound on {name}", search.bounds, summary, name)
        ],
        # Importances come first: they decide which parameters the other figures leave out.
        "params": [
            *draw_guarded("Hyperparameter importances", params.importances),
            *draw_guarded("Parallel coordinates", params.parallel),
            *draw_guarded("Slices", params.slices),
        ],
        "model": _model_figures(report, content),
        "slices": _slice_figures(report),
    }
    if len(summary.objectives) > 1:
        figures_of["pareto"] = draw_guarded("Pareto front", params.pareto)
    if summary.best is None:
        figures_of["params"] = []
        figures_of["pareto"] = []
        figures_of["bounds"] = []
    return {section: [_html(figure) for figure in figures] for section, figures in figures_of.items()}


def _slice_figures(report: dict[str, Any]) -> list[Figure]:
    if not report["winner"]:
        return []
    metric = report["main_metric"]
    slices = report["slices"]
    groups = [group for judged in slices for group in judged["groups"]]
    if not any(metric in group["metrics"] for group in groups):
        return []
    return draw_guarded("Slices", judgement.slice_intervals, slices, metric, report["metrics"][metric])


def _model_figures(report: dict[str, Any], content: PageContent) -> list[Figure]:
    if not report["winner"]:
        return []
    figures: list[Figure] = []
    if report["confusion"]:
        figures += draw_guarded("Confusion matrix", model.confusion, report)
    if report["calibration"]:
        figures += draw_guarded("Calibration", judgement.reliability, report["calibration"])
    if report["residuals"]:
        figures += draw_guarded(
            "Residuals",
            judgement.residual_plot,
            report["residuals"],
            report["snapshot"]["splits"][report["split"]],
        )
    for figure in content.evaluator_figures:
        figures += draw_guarded(figure.title, judgement.evaluator_figure, figure)
    return figures


def _html(figure: Figure) -> dict[str, str]:
    from plotly.io import to_html

    drawing = figure.drawing()
    html = ""
    if drawing:
        html = to_html(drawing, full_html=False, include_plotlyjs=False, config=_PLOTLY, validate=False)
    return {"title": figure.title, "reading": figure.reading, "html": html, "left_out": figure.left_out}


def _replay_hint(report: dict[str, Any], content: PageContent) -> str:
    """A command that replays other strategies on this sweep's curves; "" if a replay would tell nothing."""
    summary = content.summary
    strategy = content.spec.strategy
    if len(summary.objectives) > 1 or summary.best is None or content.spec.budgets[-1] < 3:
        return ""
    audit = report["audit"] or {}
    budget = audit.get("raise_to") or max(1, content.spec.budgets[-1] // 9)
    other = "hyperband"
    if strategy.name == "hyperband":
        other = "median"
    return f"halving replay {summary.sweep} --strategy 'asha: {{min_budget: {budget}}}' --strategy {other}"


def render_preview(report: dict[str, Any], path: str) -> str:
    """Render the result, the champion, the leading trials and the savings as short Markdown."""
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
    """A value as tables show it: with few digits if it is no whole number; a list or mapping by its name."""
    if value is None:
        return "null"
    if isinstance(value, list | dict):
        return str(choice_name(value))
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    if 0.001 <= abs(value) < 1000 or value == 0:
        return f"{value:.4f}"
    return f"{value:.3g}"


def within(interval: dict[str, Any] | None) -> str:
    """An interval as tables show it; "" if there is none."""
    if not interval or interval["low"] is None or not math.isfinite(interval["low"]):
        return ""
    return f"{number(interval['low'])} to {number(interval['high'])}"


def megabytes(size: int | None) -> str:
    """A size in MB or KB."""
    if size is None:
        return "unknown"
    if size >= 1e5:
        return f"{size / 1e6:.1f} MB"
    return f"{size / 1e3:.1f} KB"


def _headline(report: dict[str, Any]) -> str:
    metrics = [f"{name} {number(value)}" for name, value in report["metrics"].items()]
    return f"{', '.join(metrics)} on the {report['split']} split"


def _verdict(report: dict[str, Any]) -> str:
    """The verdict of all gates together, in a sentence; "" if none was judged."""
    gates = report.get("gates") or []
    failed = [gate["name"].replace("_", " ") for gate in gates if gate["outcome"] == "fail"]
    unsure = [gate["name"].replace("_", " ") for gate in gates if gate["outcome"] == "too little evidence"]
    if failed:
        return f"Not promoted: {comma_list(dict.fromkeys(failed))} failed."
    if unsure:
        return f"Promotion is held back: too little evidence for {comma_list(dict.fromkeys(unsure))}."
    if gates:
        return "All gates passed."
    return ""
