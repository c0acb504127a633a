"""Searches in virtual time: nothing trained twice, nobody idle, whatever becomes of the workers."""

from collections.abc import Callable
from typing import Any

import pytest

from resources.search.simulation import SimulatedWorkers, Simulation, simulate
from resources.search.state import Result, Status
from resources.sweep_spec import SweepSpec

Spec = Callable[..., SweepSpec]

ASHA = {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 27}}


def curve(trial: int, params: dict[str, Any], epochs: int) -> Result:
    return Result((params["x"] * (1 - 0.5**epochs),))


def ends(search: Simulation) -> set[Status]:
    return {trial.status for trial in search.state.trials}


def test_one_worker_takes_the_sum_of_all_epochs(small_spec: Spec) -> None:
    search = simulate(
        small_spec(strategy={"random": {"budget": 5}}, max_trials=4), curve, SimulatedWorkers(1)
    )
    assert (search.epochs, search.seconds, search.busy_seconds, search.repeated_epochs) == (20, 20.0, 20.0, 0)
    assert (search.idle_seconds, search.starting) == (0.0, 15.0)
    assert ends(search) == {Status.COMPLETED}


def test_a_faster_worker_trains_more_in_the_same_time(small_spec: Spec) -> None:
    spec = small_spec(strategy={"random": {"budget": 4}}, max_trials=40)
    slow, fast = (
        simulate(spec, curve, SimulatedWorkers(4, speeds=(speed, speed))).seconds for speed in (1.0, 2.0)
    )
    assert slow == pytest.approx(2 * fast)


def test_a_trial_goes_on_where_it_was_and_repeats_nothing_without_faults(small_spec: Spec) -> None:
    search = simulate(small_spec(strategy=ASHA, max_trials=81), curve, SimulatedWorkers(8, speeds=(0.5, 2.0)))
    ladder = search.state.rules.ladders[0]
    assert search.epochs == sum(ladder[len(trial.results) - 1] for trial in search.state.trials)
    assert search.repeated_epochs == 0
    assert search.busy_seconds + search.idle_seconds + search.tail_seconds == pytest.approx(
        8 * search.seconds
    )


def test_the_same_arguments_simulate_the_same_search(small_spec: Spec) -> None:
    spec = small_spec(strategy={"asha": {"sampler": "tpe", "max_budget": 9}}, max_trials=30)
    workers = SimulatedWorkers(5, speeds=(0.3, 3.0), mean_life=20.0, crash=0.1)
    first, other = (simulate(spec, curve, workers, seed=3) for _ in range(2))
    assert (first.params, first.seconds, first.state.trials) == (
        other.params,
        other.seconds,
        other.state.trials,
    )
    assert simulate(spec, curve, workers, seed=4).seconds != first.seconds


def test_a_search_ends_with_the_epochs_it_may_spend(small_spec: Spec) -> None:
    search = simulate(small_spec(strategy=ASHA, max_trials=1000), curve, SimulatedWorkers(1), max_epochs=50)
    assert 50 <= search.epochs < 50 + 27


def test_a_curve_that_ends_before_the_rung_counts_with_its_last_value(small_spec: Spec) -> None:
    def short(trial: int, params: dict[str, Any], epochs: int) -> Result | None:
        return Result((float(epochs),)) if 0 < epochs <= trial else None

    search = simulate(
        small_spec(strategy={"random": {"budget": 2}}, max_trials=3), short, SimulatedWorkers(1)
    )
    assert [trial.status for trial in search.state.trials] == [
        Status.FAILED,
        Status.COMPLETED,
        Status.COMPLETED,
    ]
    assert [trial.results for trial in search.state.trials] == [(None,), (Result((1.0,)),), (Result((2.0,)),)]


def test_a_thousand_trials_on_128_workers_that_are_lost_all_the_time(small_spec: Spec) -> None:
    """No rung is trained twice, no trial is lost, and workers wait for less than 1 % of their time."""
    spec = small_spec(strategy=ASHA, max_trials=1000, max_preemptions=1000)
    workers = SimulatedWorkers(128, speeds=(0.25, 4.0), mean_life=100.0, replaced_after=5.0, lease=15.0)
    search = simulate(spec, curve, workers, seed=1, epoch_seconds=lambda params: 10.0)
    assert search.lost_workers > 128
    assert set(search.rungs.values()) == {1}
    assert len(search.state.trials) == 1000
    assert ends(search) <= {Status.PAUSED, Status.COMPLETED}
    assert sum(len(trial.results) for trial in search.state.trials) == len(search.rungs)
    assert search.idle_seconds < 0.01 * search.busy_seconds
    # No epoch that has a checkpoint was trained again.
    assert search.repeated_epochs == 0


def test_trials_whose_workers_are_lost_too_often_are_given_up_and_the_search_ends(small_spec: Spec) -> None:
    spec = small_spec(strategy={"random": {"budget": 100}}, max_trials=5, max_preemptions=2)
    search = simulate(spec, curve, SimulatedWorkers(2, mean_life=1.0, replaced_after=1.0), seed=0)
    assert ends(search) == {Status.FAILED}
    assert {trial.preemptions for trial in search.state.trials} == {3}
