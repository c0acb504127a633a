"""Replays on known curves: nothing is made up, and what is not known is counted."""

from collections.abc import Callable
from typing import Any

import pytest

from halving.errors import InvalidInput
from resources.search.replay import Replayed, TrialCurve, curve_of, replay, result_at, spec_with
from resources.search.simulation import SimulatedWorkers, simulate
from resources.search.state import Result, Status
from resources.sweep_spec import SweepSpec

Spec = Callable[..., SweepSpec]


def rising(limit: float, epochs: int) -> dict[str, list[tuple[int, float]]]:
    return {"score": [(epoch, limit * (1 - 0.5**epoch)) for epoch in range(1, epochs + 1)]}


def curves(spec: SweepSpec, *epochs: int, ended: Any = "stopped") -> list[TrialCurve]:
    return [curve_of(spec, rising(0.5 + 0.01 * number, last), ended) for number, last in enumerate(epochs)]


def test_on_whole_curves_a_replay_is_the_search_itself(small_spec: Spec) -> None:
    spec = small_spec(max_trials=20)
    trial_curves = curves(spec, *[9] * 20)
    replayed = replay(spec_with(spec, {"asha": {"max_budget": 9}}, 20), trial_curves, workers=2)
    searched = simulate(
        spec, lambda trial, params, epochs: result_at(spec, trial_curves[trial], epochs), SimulatedWorkers(2)
    )
    completed = sum(trial.status is Status.COMPLETED for trial in searched.state.trials)
    assert (replayed.epochs, replayed.seconds, replayed.completed) == (
        searched.epochs,
        searched.seconds,
        completed,
    )
    assert (replayed.unknown_epochs, replayed.unknown_trials, replayed.winner_epochs) == (0, 0, 9)


def test_full_training_of_whole_curves_finds_the_best_of_them(small_spec: Spec) -> None:
    spec = small_spec(max_trials=6)
    replayed = replay(spec_with(spec, "random", 6), curves(spec, *[9] * 6), workers=3)
    assert (
        replayed.epochs,
        replayed.completed,
        replayed.winner,
        replayed.worker_seconds,
        replayed.seconds,
    ) == (
        54,
        6,
        5,
        54.0,
        18.0,
    )
    assert replayed.winner_objective == pytest.approx(0.55 * (1 - 0.5**9))


def test_epochs_after_the_end_of_a_curve_are_counted_and_nothing_is_made_up(small_spec: Spec) -> None:
    spec = small_spec(max_trials=3)
    replayed = replay(spec_with(spec, "random", 3), curves(spec, 9, 3, 1), workers=1)
    assert (replayed.epochs, replayed.unknown_epochs, replayed.unknown_trials, replayed.completed) == (
        27,
        6 + 8,
        2,
        1,
    )
    assert (replayed.winner, replayed.winner_epochs) == (0, 9)


def test_a_trial_that_returned_is_done_where_it_ended_and_asks_for_nothing_unknown(small_spec: Spec) -> None:
    spec = small_spec(max_trials=2)
    replayed = replay(spec_with(spec, "random", 2), curves(spec, 4, 4, ended="returned"), workers=1)
    assert (replayed.epochs, replayed.unknown_epochs, replayed.winner, replayed.winner_epochs) == (8, 0, 1, 4)


def test_a_trial_that_failed_fails_again_and_counts_as_the_worst(small_spec: Spec) -> None:
    spec = small_spec(max_trials=2)
    trial_curves = [curve_of(spec, rising(0.9, 4), "failed"), *curves(spec, 9)]
    replayed = replay(spec_with(spec, "random", 2), trial_curves, workers=1)
    assert (replayed.epochs, replayed.unknown_epochs, replayed.winner) == (4 + 9, 0, 1)
    only = replay(spec_with(spec, "random", 1), trial_curves[:1], workers=1)
    assert (only.winner, only.winner_objective) == (None, None)


def test_a_curve_that_diverges_ends_as_failed_before(small_spec: Spec) -> None:
    points = {"score": [(1, 0.5), (2, float("nan")), (3, 0.9)]}
    assert curve_of(small_spec(), points, "stopped") == TrialCurve(points, 1, "failed")


@pytest.mark.parametrize(
    ("objective", "value"),
    [
        ({}, 0.2),
        ({"summary": "best"}, 0.9),
        ({"summary": "average", "window": 2}, 0.3),
        ({"summary": "average"}, 0.5),
    ],
)
def test_a_rung_reports_the_objectives_summary_of_the_curve(
    small_spec: Spec, objective: dict[str, Any], value: float
) -> None:
    spec = small_spec(objective={"metric": "score", "direction": "maximize", **objective})
    curve = curve_of(spec, {"score": [(1, 0.5), (2, 0.9), (3, 0.4), (4, 0.2), (5, 1.0)]}, "stopped")
    result = result_at(spec, curve, 4)
    assert result is not None
    assert result.value == pytest.approx(value)
    assert result_at(spec, curve, 6) is None
    assert result_at(spec, curve, 0) is None


def test_bounds_and_other_objectives_are_read_from_their_own_curves(small_spec: Spec) -> None:
    spec = small_spec(
        other_objectives=[{"metric": "size", "direction": "minimize", "summary": "best"}],
        bounds={"latency": {"max": 10}},
        strategy={"random": {"budget": 9}},
    )
    points = {"score": [(1, 0.5), (2, 0.6)], "size": [(1, 3.0), (2, 4.0)], "latency": [(1, 5.0), (2, 15.0)]}
    curve = curve_of(spec, points, "stopped")
    assert (result_at(spec, curve, 1), result_at(spec, curve, 2)) == (
        Result((0.5, 3.0)),
        Result((0.6, 3.0), 0.5),
    )


def test_a_sweep_with_resources_by_rung_is_replayed_under_other_rungs(
    small_spec: Spec,
) -> None:
    by_rung = small_spec(
        resources={"gpus": {1: 1, 9: 8}, "nodes": {1: 1, 9: 2}}, elastic={"min_nodes": 1}, image="train"
    )
    assert spec_with(by_rung, "random", 5).budgets == (9,)


def test_budgets_that_are_left_out_are_the_sweeps_own(small_spec: Spec) -> None:
    spec = small_spec(strategy={"tpe": {"budget": 50}}, warm_start="auto", start_from=[{"x": 0.5}])
    assert spec_with(spec, "hyperband", 5).budgets[-1] == 50
    assert spec_with(spec, {"asha": {"max_budget": 8, "min_budget": 2, "audit": 0.5}}, 5).ladders == (
        (2, 6, 8),
    )
    assert spec_with(spec, {"asha": None}, 5).audit == 0.0
    assert spec_with(spec, "random", 5).max_trials == 5


@pytest.mark.parametrize(
    ("strategy", "refusal"),
    [
        ("hypberband", r"strategy = 'hypberband' is not accepted, did you mean 'hyperband'\?: give one of"),
        (3, r"strategy = 3 is not accepted: give one of"),
        ({"asha": {}, "random": {}}, r"is not accepted: give one of"),
        ({"asha": 3}, r"strategy.asha = 3 is not accepted: give its settings by name"),
        ({"asha": {"min_budget": 99}}, r"min_budget = 99 must not be above max_budget = 9"),
        ({"asha": {"min_bugdet": 1}}, r"did you mean 'min_budget'"),
        ("grid", r"strategy = 'grid' cannot be replayed"),
    ],
)
def test_what_is_no_strategy_is_refused_with_what_is(small_spec: Spec, strategy: Any, refusal: str) -> None:
    with pytest.raises(InvalidInput, match=refusal):
        spec_with(small_spec(), strategy, 9)


def test_the_same_replay_twice_is_the_same(small_spec: Spec) -> None:
    spec = small_spec(max_trials=12)

    def once() -> Replayed:
        return replay(
            spec_with(spec, {"hyperband": {"min_budget": 1}}, 12), curves(spec, *[9, 3, 1] * 4), workers=4
        )

    assert once() == once()
