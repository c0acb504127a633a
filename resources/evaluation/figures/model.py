"""Figures of models: learning curves of the leading trials, and the winner's confusion matrix."""

from typing import Any

from resources.evaluation.figures.style import QUIET, Figure, apply_style

_MAX_RUNGS = 12  # With more rungs, the learning curves mark none.


def learning_curves(summary: dict[str, Any], curves: list[dict[str, Any]]) -> Figure:
    """Draw the objective of the leading trials over the epochs.

    Args:
        summary: the sweep's summary as a dict, as the report has it.
        curves: rows with ``run``, ``step`` and ``value``.
    """
    from plotly import graph_objects as go

    title = "Learning curves of the leading trials"
    if not curves:
        return Figure(title, f"The store has no points of {summary['objective']} for the leading trials.")
    figure = go.Figure()
    winner = summary["standings"][0]["key"]
    for run in dict.fromkeys([winner, *(row["run"] for row in curves)]):
        points = [row for row in curves if row["run"] == run]
        name = run.rpartition(".")[2]
        width = 1.5
        if run == winner:
            name = f"{name} (winner)"
            width = 3
        figure.add_scatter(
            x=[row["step"] for row in points],
            y=[row["value"] for row in points],
            name=name,
            mode="lines+markers",
            line={"width": width},
            marker={"size": 5},
        )
    marked = sorted({rung["epochs"] for rung in summary["rungs"]})[:-1]
    if len(marked) <= _MAX_RUNGS:
        for epochs in marked:
            figure.add_vline(x=epochs, line={"color": QUIET, "width": 1, "dash": "dot"})
    reading = (
        "Each line is a trial, the bold one is the winner; dotted lines are rungs, where trials are "
        "compared and most of them stop."
    )
    return Figure(title, reading, apply_style(figure, "epoch", summary["objective"]))


def confusion(report: dict[str, Any]) -> Figure:
    """Draw the confusion matrix of a report: true classes by predicted classes."""
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
