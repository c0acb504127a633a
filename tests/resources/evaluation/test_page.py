"""The sweep's page is made whatever the sweep was like: few trials or many, one or several objectives,
conditions, failures.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from resources.analysis.summary import summarize
from resources.analysis.timeline import Milestone, Timeline, timeline_of
from resources.backend import Backend
from resources.catalog import utcnow
from resources.evaluation.figures.params import ParamFigures, comparable
from resources.evaluation.figures.search import bounds, history
from resources.evaluation.figures.style import clock, draw_guarded, value_range
from resources.evaluation.report import NoWinner, evaluate_sweep, report_path
from resources.search.spread import spread
from resources.sweep_spec import SweepSpec
from tests.searches import search

Spec = Callable[..., SweepSpec]

CONDITIONAL = {
    "optimizer": {"categorical": ["adam", "sgd"]},
    "momentum": {"float": {"low": 0.0, "high": 0.99}, "when": {"optimizer": "sgd"}},
    "x": {"float": {"low": 0.0, "high": 1.0}},
}


def score(trial: int, params: Mapping[str, Any], epochs: int) -> dict[str, float]:
    x = params.get("x", 0.3)
    return {"score": (1 - (x - 0.5) ** 2) * (1 - 0.5**epochs), "latency_ms": 100 * x, "size": 1.0 - x}


@pytest.fixture
def page(backend: Backend, small_spec: Spec) -> Callable[..., str]:
    """Search a spec, and give its page without Plotly's script."""

    def make_page(train: Any = score, **changes: Any) -> str:
        sweep = search(
            backend, small_spec(**{"predictor": "tests.trainables:predict_badly", **changes}), train
        )
        html = backend.store.get_blob(
            evaluate_sweep(backend.store, backend.catalog, sweep).html_digest
        ).decode()
        assert html.count("plotly.js v") == 1
        before, _, after = html.partition("</script>")
        assert "could not be drawn" not in after
        return before[-1000:] + after

    return make_page


def charts(page: str) -> int:
    return page.count("Plotly.newPlot(")


def figure_titles(page: str) -> list[str]:
    return re.findall(r"<h3>(.*?)</h3>", page)


@pytest.mark.slow
def test_a_sweep_in_brackets_shows_every_section(page: Callable[..., str]) -> None:
    html = page(
        strategy={"hyperband": {"min_budget": 1, "max_budget": 9, "audit": 0.5}},
        bounds={"latency_ms": {"max": 80}},
        space={name: {"float": {"low": 0.0, "high": 1.0}} for name in "xyzuv"},
        max_trials=24,
    )
    wanted = [
        "Optimisation history",
        "What was stopped, and where",
        "Rung ladder",
        "What early stopping saved",
        "Bound on latency_ms",
    ]
    wanted += ["Hyperparameter importances", "Parallel coordinates", "Another strategy?"]
    assert set(wanted) <= set(figure_titles(html))
    assert sum(title.startswith("Slices: ") for title in figure_titles(html)) == 2
    for said in (
        "bracket 3: rungs at 9 epochs",
        "Was pruning right?",
        "spent on the audit",
        "trials with a result are within",
        "halving replay",
    ):
        assert said in html
    assert "halving replay small-" in html


@pytest.mark.slow
def test_the_page_says_why_a_metric_has_no_value_and_that_rows_come_in_groups(
    page: Callable[..., str],
) -> None:
    dataset = {
        "name": "customers",
        "source": "tests.trainables:customers",
        "target": "label",
        "group": "customer",
    }
    html = page(
        dataset=dataset,
        predictor="tests.predictors:nan_probabilities",
        metrics=["neg_log_loss"],
        max_trials=2,
    )
    assert html.count("eg_log_loss (the predictor returned numbers that are not finite)") == 1
    assert re.search(r"rows of the split are of \d+ groups \(<code>customer</code>\)", html)


@pytest.mark.slow
def test_several_objectives_show_their_front(page: Callable[..., str]) -> None:
    others = [{"metric": "size", "direction": "minimize"}]
    space = {name: {"float": {"low": 0.0, "high": 1.0}} for name in "xy"}
    strategy = {"nsga2": {"budget": 2, "population_size": 8}}
    html = page(strategy=strategy, other_objectives=others, space=space, max_trials=12)
    assert "Pareto front" in figure_titles(html)
    assert "maximize score, minimize size" in html
    assert ", on the front</td>" in html
    assert "halving replay" not in html


@pytest.mark.slow
def test_four_objectives_have_a_table_instead_of_a_front(page: Callable[..., str]) -> None:
    others = [{"metric": name, "direction": "minimize"} for name in ("size", "latency_ms", "a")]
    html = page(
        lambda *args: {**score(*args), "a": 1.0},
        strategy={"random": {"budget": 2}},
        other_objectives=others,
        max_trials=3,
    )
    assert "on the front of 4 objectives; the table below marks them" in html


@pytest.mark.slow
def test_conditional_parameters_are_shown_where_they_exist(page: Callable[..., str]) -> None:
    html = page(space=CONDITIONAL, strategy={"random": {"budget": 2}}, max_trials=14)
    assert '<th class="n">momentum</th>' in html
    assert re.search(r'<td class="n">\W</td>', html)  # where it does not exist
    assert "Slices: momentum, optimizer, x" in figure_titles(html)


@pytest.mark.slow
def test_lists_mappings_and_null_have_short_names_on_the_page(page: Callable[..., str]) -> None:
    choices = [None, [64, 64], {"name": "sgd"}, list(range(50))]
    space = {
        "layers": {"categorical": choices},
        "x": {"float": {"low": 0.0, "high": 1.0}},
        "depth": {"constant": None},
    }
    starts = [{"layers": choice} for choice in choices]
    html = page(space=space, start_from=starts, strategy={"random": {"budget": 2}}, max_trials=14)
    for name in ("null", "[64, 64]", "{&#34;name&#34;: &#34;sgd&#34;}"):
        assert f'<td class="n">{name}</td>' in html
    assert re.search(r'<td class="n">\[0, 1, 2, [0-9, ]+…[0-9a-f]{8}</td>', html)
    assert {"Slices: layers, x", "Parallel coordinates"} <= set(figure_titles(html))


@pytest.mark.slow
def test_a_single_trial_has_a_page(page: Callable[..., str]) -> None:
    html = page(max_trials=1, strategy={"random": {"budget": 1}})
    assert "Only x was searched, so there is nothing to compare." in html
    assert charts(html) >= 4


@pytest.mark.slow
def test_constants_alone_have_a_page(page: Callable[..., str]) -> None:
    html = page(space={"depth": {"constant": 3}, "width": {"constant": 4}}, max_trials=3)
    assert (
        "No hyperparameter was searched in the trials that have a result, so there is nothing to show."
        in html
    )


@pytest.mark.slow
def test_equal_results_have_a_page(page: Callable[..., str]) -> None:
    space = {name: {"float": {"low": 0.0, "high": 1.0}} for name in "xy"}
    html = page(lambda *_: {"score": 0.5}, space=space, strategy={"random": {"budget": 2}}, max_trials=12)
    assert "All trials have the same result" in html


@pytest.mark.slow
def test_failures_among_results_are_told(page: Callable[..., str]) -> None:
    html = page(
        lambda trial, params, epochs: None if trial % 2 else score(trial, params, epochs),
        max_trials=6,
        max_retries=0,
    )
    assert "Failed trials" in html
    assert "RuntimeError: trial 1 cannot be trained" in html


@pytest.mark.slow
def test_a_winner_out_of_bounds_is_said_to_be_so(page: Callable[..., str]) -> None:
    assert "No trial is within its bounds" in page(bounds={"latency_ms": {"max": -1}}, max_trials=3)


@pytest.mark.slow
def test_many_checks_of_the_median_rule_stay_readable(page: Callable[..., str]) -> None:
    strategy = {"median": {"sampler": "random", "max_budget": 200, "min_trials": 2}}
    html = page(strategy=strategy, max_trials=5)
    assert re.search(r"Not drawn: \d+ of \d+ rungs\.", html)


def test_only_failures_have_a_page_though_no_report(backend: Backend, small_spec: Spec) -> None:
    sweep = search(backend, small_spec(max_trials=2, max_retries=0), lambda *_: None)
    with pytest.raises(NoWinner, match=rf"2 trials failed: .* What happened: .*reports/{sweep}\.html"):
        evaluate_sweep(backend.store, backend.catalog, sweep)
    html = backend.store.read(report_path(sweep)).decode()
    assert "No trial has a result, so there is nothing to evaluate." in html
    assert "RuntimeError: trial 0 cannot be trained" in html
    assert "Rung ladder" in html


def test_the_timeline_knows_what_belongs_to_the_audit(backend: Backend, small_spec: Spec) -> None:
    strategy = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 9, "audit": 0.5}}
    sweep = search(backend, small_spec(strategy=strategy, max_trials=8), score)
    timeline = timeline_of(backend.catalog, sweep)
    summary = summarize(backend.catalog, sweep)
    assert len({attempt.trial for attempt in timeline.attempts if attempt.audit}) == summary.audited > 0
    assert sum(not milestone.audit for milestone in timeline.milestones) == sum(
        rung.reached for rung in summary.rungs
    )
    assert timeline.began is not None
    assert all(
        timeline.began <= attempt.began <= (attempt.ended or attempt.began) for attempt in timeline.attempts
    )


def test_what_matters_is_important_whichever_way_is_better(backend: Backend, small_spec: Spec) -> None:
    space = {name: {"float": {"low": 0.0, "high": 1.0}} for name in "xy"}
    for direction, sign in (("maximize", 1), ("minimize", -1)):
        others = [{"metric": "size", "direction": "minimize"}]
        objective = {"metric": "score", "direction": direction}
        spec = small_spec(
            space=space,
            objective=objective,
            other_objectives=others,
            strategy={"random": {"budget": 1}},
            max_trials=60,
        )
        sweep = search(
            backend,
            spec,
            lambda n, params, e, sign=sign: {"score": sign * (params["x"] > 0.8), "size": params["y"]},
        )
        figures = ParamFigures(spec, summarize(backend.catalog, sweep), timeline_of(backend.catalog, sweep))
        of_score, of_size = figures.importances().plot.data
        assert dict(zip(of_score.y, of_score.x, strict=True))["x"] > 0.8
        assert dict(zip(of_size.y, of_size.x, strict=True))["y"] > 0.8


def milestone(number: int, epochs: int, value: float) -> Milestone:
    at = utcnow() + timedelta(seconds=number)
    return Milestone(number, 1, 0, epochs, value, 0.0, "pause", False, at)


def test_results_are_compared_after_the_most_epochs_that_enough_trials_have(small_spec: Spec) -> None:
    def at(*counts: tuple[int, int]) -> int:
        return comparable(
            small_spec(),
            Timeline([], [milestone(n, epochs, 0.5) for epochs, count in counts for n in range(count)]),
        )

    assert at((1, 60), (3, 20), (9, 7)) == 3
    assert at((1, 9), (3, 3), (9, 1)) == 1
    assert at((9, 4)) == 9
    assert at() == 0


def test_pages_of_ten_thousand_results_draw_a_bounded_number(backend: Backend, small_spec: Spec) -> None:
    sweep = search(backend, small_spec(max_trials=2, strategy={"random": {"budget": 1}}), score)
    summary = summarize(backend.catalog, sweep)
    timeline = Timeline([], [milestone(number, 1, number / 1e4) for number in range(10_000)])
    figure = history(summary, timeline)
    assert sum(len(trace.x) for trace in figure.plot.data if trace.mode == "markers") == 4000
    assert figure.left_out == "Not drawn: 6000 of 10000 results."
    assert max(max(trace.y) for trace in figure.plot.data) == 0.9999  # the leaders are all there


def test_trials_within_bounds_that_are_not_drawn_are_counted(backend: Backend, small_spec: Spec) -> None:
    summary = summarize(
        backend.catalog, search(backend, small_spec(max_trials=2, strategy={"random": {"budget": 1}}), score)
    )
    standing = replace(summary.standings[0], metrics={"latency": 1.0}, violation=0.0)
    figure = bounds(
        replace(summary, standings=[standing] * 3000, bounds={"latency": {"max": 2.0}}), "latency"
    )
    assert figure.left_out == "Not drawn: 1000 of 3000 trials."


def test_a_figure_that_cannot_be_drawn_says_why_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    (figure,) = draw_guarded("Slices", lambda: ParamFigures(None, None, None))  # type: ignore[arg-type]
    assert figure.plot is None
    assert figure.reading.startswith("This figure could not be drawn: AttributeError")
    assert "Slices" in caplog.text


def test_results_far_on_the_worse_side_do_not_squash_the_others() -> None:
    values = [0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 0.96, 0.97, -1e6]
    limits, outside = value_range(values, maximize=True)
    assert limits is not None
    assert outside == 1
    assert 0.5 < limits[0] < 0.9 < 0.97 < limits[1] < 1
    assert value_range([-value for value in values], maximize=False)[1] == 1
    assert value_range(values[:-1], maximize=True) == (None, 0)


def test_a_spread_keeps_the_first_and_the_even_rest() -> None:
    assert spread(range(5), 8) == [0, 1, 2, 3, 4]
    assert spread(range(100), 8) == [0, 1, 2, 18, 34, 51, 67, 83]


@pytest.mark.parametrize(
    ("seconds", "unit", "expected"),
    [(50, "seconds", 50), (600, "minutes", 10), (9000, "hours", 2.5), (259200, "days", 3)],
)
def test_time_is_told_in_the_unit_that_fits(seconds: float, unit: str, expected: float) -> None:
    began = utcnow()
    elapsed, name = clock(began, began + timedelta(seconds=seconds))
    assert (elapsed(began + timedelta(seconds=seconds)), name) == (expected, unit)
