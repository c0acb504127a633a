"""The report as people see it: one self-contained HTML page, and a Markdown preview for Dagster's UI."""

import math
from functools import cache
from typing import Any

_ACCENT, _QUIET, _BAD = "#2b6cb0", "#a0aec0", "#c53030"
_COLORWAY = ["#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b7791f", "#2c7a7b", "#97266d", "#4a5568", "#9b2c2c", "#285e61"]


def render_page(report: dict[str, Any], curves: list[dict[str, Any]]) -> str:
    """The whole report in one HTML file that opens without a network (Plotly's script is inside).

    Args:
        report: the report's data.
        curves: rows ``run, step, value`` of the objective for the leading trials.
    """
    from plotly.offline import get_plotlyjs

    summary = report["summary"]
    figures = {"curves": _curves(report, curves), "rungs": _rungs(summary)}
    if report["confusion"] is not None:
        figures["confusion"] = _confusion(report)
    return _template("report.html").render(
        report=report,
        summary=summary,
        figures={
            name: figure.to_html(full_html=False, include_plotlyjs=False, config={"displaylogo": False}) for name, figure in figures.items()
        },
        plotly=get_plotlyjs(),
        headline=_headline(report),
    )


def render_preview(report: dict[str, Any], path: str) -> str:
    """A screenful of Markdown: the result, the champion, the leaders, what was saved."""
    return _template("preview.md").render(report=report, summary=report["summary"], path=path, headline=_headline(report))


@cache
def _template(name: str) -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("resources", "templates"),
        autoescape=name.endswith(".html"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percent": lambda share: f"{100 * share:.0f} %", "duration": duration}
    return environment.get_template(name)


def number(value: Any) -> str:
    """A number as a table shows it: four significant digits, whole numbers whole."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4f}" if 0.001 <= abs(value) < 1000 or value == 0 else f"{value:.3g}"


def duration(seconds: float) -> str:
    """``12 s``, ``3.4 min`` or ``5.6 h``."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _headline(report: dict[str, Any]) -> str:
    shown = [f"{name} {number(value)}" for name, value in report["metrics"].items()]
    return f"{', '.join(shown)} on the {report['split']} split"


def _curves(report: dict[str, Any], curves: list[dict[str, Any]]) -> Any:
    from plotly import graph_objects as go

    figure = go.Figure()
    winner = report["winner"]["key"]
    for run in dict.fromkeys([winner, *(row["run"] for row in curves)]):
        points = [row for row in curves if row["run"] == run]
        width = 3 if run == winner else 1.5
        figure.add_scatter(
            x=[row["step"] for row in points],
            y=[row["value"] for row in points],
            name=f"{run.rpartition('.')[2]}{' (winner)' if run == winner else ''}",
            mode="lines+markers",
            line={"width": width},
            marker={"size": 5},
        )
    for rung in report["summary"]["rungs"][:-1]:
        figure.add_vline(x=rung["epochs"], line={"color": _QUIET, "width": 1, "dash": "dot"})
    return _styled(figure, x="epoch", y=report["summary"]["objective"])


def _rungs(summary: dict[str, Any]) -> Any:
    from plotly import graph_objects as go

    figure = go.Figure()
    epochs = [f"{rung['epochs']} epochs" for rung in summary["rungs"]]
    last = len(epochs) - 1
    bars = {
        "promoted": (_ACCENT, [rung["promoted"] for rung in summary["rungs"]]),
        "finished": ("#2f855a", [rung["stopped"] if index == last else 0 for index, rung in enumerate(summary["rungs"])]),
        "stopped here": (_QUIET, [rung["stopped"] if index < last else 0 for index, rung in enumerate(summary["rungs"])]),
        "failed": (_BAD, [rung["failed"] for rung in summary["rungs"]]),
    }
    for name, (color, counts) in bars.items():
        if any(counts):
            figure.add_bar(x=epochs, y=counts, name=name, marker={"color": color})
    figure.update_layout(barmode="stack")
    return _styled(figure, x="rung", y="trials")


def _confusion(report: dict[str, Any]) -> Any:
    from plotly import graph_objects as go

    labels = [str(label) for label in report["labels"]]
    figure = go.Figure(
        go.Heatmap(z=report["confusion"], x=labels, y=labels, colorscale="Blues", showscale=False, texttemplate="%{z}", xgap=1, ygap=1)
    )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(type="category")
    return _styled(figure, x="predicted", y="true", height=440)


def _styled(figure: Any, *, x: str, y: str, height: int = 360) -> Any:
    figure.update_layout(
        template="plotly_white",
        colorway=_COLORWAY,
        height=height,
        margin={"l": 60, "r": 20, "t": 20, "b": 50},
        font={"family": "system-ui, sans-serif", "size": 13},
        xaxis_title=x,
        yaxis_title=y,
    )
    return figure
