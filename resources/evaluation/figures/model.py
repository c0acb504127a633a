"""Figures of models: how the leading trials learned, and what the winner confuses."""

from typing import Any

from resources.evaluation.figures.style import QUIET, Figure, apply_style

_MOST_RUNGS = 12  # that the learning curves mark


def learning_curves(summary: dict[str, Any], curves: list[dict[str, Any]]) -> Figure:
    """The objective of the leading trials, epoch by epoch.

    Args:
        summary: the sweep's summary, as data.
        curves: rows ``run, step, value``.
    """
    from plotly import graph_objects as go

    title = "Learning curves of the leading trials"
    if not curves:
        return Figure(title, f"The store has no points of {summary['objective']} for the leading trials.")
    figure = go.Figure()
    winner = summary["standings"][0]["key"]
    for run in dict.fromkeys([winner, *(row["run"] for row in curves)]):
        points = [row for row in curves if row["run"] == run]
        figure.add_scatter(
            x=[row["step"] for row in points],
            y=[row["value"] for row in points],
            name=f"{run.rpartition('.')[2]}{' (winner)' if run == winner else ''}",
            mode="lines+markers",
            line={"width": 3 if run == winner else 1.5},
            marker={"size": 5},
        )
    marked = sorted({rung["epochs"] for rung in summary["rungs"]})[:-1]
    for epochs in marked if len(marked) <= _MOST_RUNGS else []:
        figure.add_vline(x=epochs, line={"color": QUIET, "width": 1, "dash": "dot"})
    reading = (
        "Each line is a trial, the bold one is the winner; dotted lines are rungs, where trials are "
        "compared and most of them stop."
    )
    return Figure(title, reading, apply_style(figure, "epoch", summary["objective"]))


def confusion(report: dict[str, Any]) -> Figure:
    """True against predicted classes."""
    from plotly import graph_objects as go

    labels = [str(label) for label in report["labels"]]
    figure = go.Figure(
        go.Heatmap(
            z=report["confusion"],
            x=labels,
            y=labels,
            colorscale="Blues",
            showscale=False,
            texttemplate="%{z}",
            xgap=1,
            ygap=1,
        )
    )
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(type="category")
    reading = (
        f"Rows of the {report['split']} split by true and predicted class; the diagonal has the right ones."
    )
    return Figure("Confusion matrix", reading, apply_style(figure, "predicted", "true", 440))
