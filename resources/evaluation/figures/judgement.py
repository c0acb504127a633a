"""Figures of the winner's predictions: calibration, residuals, slices, and an evaluator's own figures."""

import base64
from collections.abc import Sequence
from typing import Any

from resources.evaluation.figures.style import ACCENT, QUIET, Figure, apply_style, missing, not_drawn
from resources.evaluation.predictor_messages import Figure as EvaluatorFigure

_MAX_GROUPS = 60  # in the figure of slices


def reliability(calibration: dict[str, Any]) -> Figure:
    """Draw how often the predicted class was right, over the probability that was predicted for it."""
    from plotly import graph_objects as go

    bins = calibration["bins"]
    largest = max((part["rows"] for part in bins), default=1)
    figure = go.Figure(
        go.Scatter(x=[0, 1], y=[0, 1], mode="lines", line={"color": QUIET, "dash": "dot"}, name="calibrated")
    )
    figure.add_scatter(
        x=[part["confidence"] for part in bins],
        y=[part["accuracy"] for part in bins],
        mode="lines+markers",
        marker={"size": [6 + 14 * (part["rows"] / largest) ** 0.5 for part in bins], "color": ACCENT},
        line={"color": ACCENT},
        text=[f"{part['rows']} rows" for part in bins],
        name="winner",
    )
    figure.update_xaxes(range=[0, 1.02])
    figure.update_yaxes(range=[0, 1.02])
    reading = (
        "Below the dotted line the probabilities promise too much, above it too little; larger dots are "
        f"more rows. Expected calibration error {calibration['error']:.4f}: the mean distance to that line."
    )
    return Figure(
        "Calibration",
        reading,
        apply_style(figure, "probability of the predicted class", "share that was right", 440),
    )


def residual_plot(residuals: dict[str, Any], rows: int) -> Figure:
    """Draw predicted minus true values over the predicted ones."""
    from plotly import graph_objects as go

    text = [f"row {row}" for row in residuals["row"]]
    figure = go.Figure(
        go.Scattergl(
            x=residuals["predicted"],
            y=residuals["residual"],
            text=text,
            mode="markers",
            marker={"size": 5, "color": ACCENT},
        )
    )
    figure.add_hline(y=0, line={"color": QUIET, "dash": "dot"})
    quantiles = residuals["quantiles"]
    reading = (
        f"Mean {residuals['mean']:.4g}; half of the rows lie within {quantiles['25']:.4g} and "
        f"{quantiles['75']:.4g}, nine of ten within "
        f"{quantiles['5']:.4g} and {quantiles['95']:.4g}. A funnel or a bend is an error that the model "
        "could still learn."
    )
    left_out = not_drawn(missing(len(text), rows, "rows"))
    return Figure("Residuals", reading, apply_style(figure, "predicted", "predicted - true", 440), left_out)


def slice_intervals(slices: Sequence[dict[str, Any]], metric: str, overall: float) -> Figure:
    """Draw the main metric of each group with its interval; the dots of small groups are hollow."""
    from plotly import graph_objects as go

    groups = []
    for judged in slices:
        for group in judged["groups"]:
            name = group["name"]
            if name != judged["slice"]:
                name = f"{judged['slice']}: {name}"
            groups.append((name, group))
    kept = [(name, group, group["metrics"][metric]) for name, group in groups[:_MAX_GROUPS]]
    figure = go.Figure()
    figure.add_scatter(
        x=[interval["value"] for _, _, interval in kept],
        y=[name for name, _, _ in kept],
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [interval["high"] - interval["value"] for _, _, interval in kept],
            "arrayminus": [interval["value"] - interval["low"] for _, _, interval in kept],
            "color": QUIET,
        },
        mode="markers",
        marker={
            "size": 9,
            "color": ACCENT,
            "symbol": ["circle-open" if group["small"] else "circle" for _, group, _ in kept],
        },
        text=[f"{group['rows']} rows" for _, group, _ in kept],
    )
    figure.add_vline(x=overall, line={"color": QUIET, "dash": "dot"})
    figure.update_yaxes(autorange="reversed", type="category")
    reading = (
        f"{metric} of each group with its 95 % interval; the dotted line is all rows. Hollow: fewer than "
        "30 rows, so mostly noise."
    )
    left_out = not_drawn(missing(len(kept), len(groups), "groups"))
    return Figure(
        "Slices of the test split", reading, apply_style(figure, metric, "", 140 + 26 * len(kept)), left_out
    )


def evaluator_figure(figure: EvaluatorFigure) -> Figure:
    """A figure that an evaluator gave."""
    import plotly.io
    from plotly import graph_objects as go

    reading = "Drawn by the evaluator."
    if figure.media_type.startswith("image/"):
        source = f"data:{figure.media_type};base64,{base64.b64encode(figure.content).decode()}"
        plot = go.Figure()
        plot.add_layout_image(
            source=source,
            x=0,
            y=1,
            sizex=1,
            sizey=1,
            xref="paper",
            yref="paper",
            sizing="contain",
            layer="above",
        )
        plot.update_xaxes(visible=False)
        plot.update_yaxes(visible=False)
        return Figure(figure.title, reading, apply_style(plot))
    return Figure(figure.title, reading, plotly.io.from_json(figure.content.decode()), own_look=True)
