"""Figures of the winner's predictions are drawn whatever they are like."""

import math

import numpy as np

import halving
from resources.evaluation.diagnostics import calibration, residuals
from resources.evaluation.figures.judgement import (
    evaluator_figure,
    reliability,
    residual_plot,
    slice_intervals,
)
from resources.evaluation.predictions import Predictions
from resources.evaluation.predictor_messages import Figure


def test_residuals_of_many_rows_say_how_many_are_not_drawn() -> None:
    rng = np.random.default_rng(0)
    report = residuals(Predictions(np.zeros(5_000), rng.normal(size=5_000)))
    assert report is not None
    figure = residual_plot(report, 5_000)
    assert figure.left_out == "Not drawn: 4000 of 5000 rows."
    assert len(figure.plot.data[0].x) == 1_000


def test_reliability_shows_each_bin_that_has_rows() -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.55, 0.45]])
    truth = np.array(["a", "b", "b"], object)
    report = calibration(
        Predictions(truth, np.array(["a", "b", "a"], object), probabilities, classes=("a", "b"))
    )
    assert report is not None
    figure = reliability(report)
    assert list(figure.plot.data[1].x) == [0.55, 0.8, 0.9]
    assert "Expected calibration error" in figure.reading


def test_slices_without_an_interval_are_drawn_and_small_ones_are_hollow() -> None:
    groups = [
        {
            "name": "Bonn",
            "rows": 40,
            "small": False,
            "metrics": {"r2": {"value": 0.5, "low": 0.4, "high": 0.6}},
        },
        {
            "name": "Ulm",
            "rows": 1,
            "small": True,
            "metrics": {"r2": {"value": math.nan, "low": math.nan, "high": math.nan}},
        },
    ]
    figure = slice_intervals([{"slice": "city", "groups": groups}], "r2", 0.5)
    assert list(figure.plot.data[0].y) == ["city: Bonn", "city: Ulm"]
    assert list(figure.plot.data[0].marker.symbol) == ["circle", "circle-open"]
    assert figure.plot.to_html()


def test_an_evaluators_pictures_and_plotly_figures_are_both_drawn() -> None:
    from plotly import graph_objects as go

    picture = halving.Image(np.zeros((4, 4), np.uint8))
    drawn = evaluator_figure(Figure("Dark", picture.media_type, picture.encode()))
    assert drawn.plot.layout.images[0].source.startswith("data:image/png;base64,")
    plotly = go.Figure(go.Scatter(x=[1, 2], y=[3, 4]))
    again = evaluator_figure(Figure("Line", "application/vnd.plotly.v1+json", plotly.to_json().encode()))
    assert list(again.plot.data[0].y) == [3, 4]
