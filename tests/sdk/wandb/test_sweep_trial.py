"""A trial of a sweep: when the search is told, what of, and that training never waits for it."""

from types import ModuleType
from typing import Any

import pytest

from halving import Store
from halving.errors import NotFound, StoreUnavailable
from halving.query.runs import read_run
from halving.wandb import sweep_trial
from halving.wandb.sweep_config import FACTS
from halving.wandb.sweep_trial import SweepTrial, TrialStopped, number_at
from tests.waiting import wait_for


class Decisions:
    """Studies that decide as a list says; an error in it is raised."""

    def __init__(self, *decisions: Any) -> None:
        self.reports: list[tuple[int, dict[str, float]]] = []
        self._decisions = list(decisions)

    def tell(self, study: str, trial: int, attempt: int, epoch: int, values: Any, *, waits: bool) -> str:
        decision = self._decisions.pop(0) if self._decisions else "continue"
        if isinstance(decision, Exception):
            raise decision
        self.reports.append((epoch, values))
        return str(decision)

    def heartbeat(self, study: str, trial: int, attempt: int) -> str:
        raise NotFound("another agent has the trial")


def trial_of(
    studies: Any, *, goal: str = "minimize", epoch: int = 0, bands: tuple[int, ...] = (1, 3)
) -> SweepTrial:
    params = {"lr": 0.5, FACTS: {"metric": "loss", "goal": goal, "bands": list(bands)}}
    work = {"trial": 0, "key": "nets-1.0000", "attempt": 1, "epoch": epoch, "params": params}
    return SweepTrial(studies, "nets-1", "nets", work)


def test_the_search_is_told_the_best_value_after_each_band_and_the_last_one_at_the_end(
    wandb: ModuleType, store: Store
) -> None:
    studies = Decisions("continue", "continue", "complete")
    trial = trial_of(studies)
    with trial.training():
        run = wandb.init()
        for loss in (3.0, 1.0, 2.0, 5.0, 4.0):
            run.log({"loss": loss})
            run.log({"other": 1.0})
        trial.complete()
    trial.finish_runs()
    assert studies.reports == [(1, {"loss": 1.0}), (2, {"loss": 1.0}), (3, {"loss": 4.0})]
    assert read_run(store, "nets", "nets-1.0000").params == {"lr": 0.5}


def test_a_trial_that_was_told_of_before_is_not_told_of_again(wandb: ModuleType) -> None:
    studies = Decisions("continue", "complete")
    trial = trial_of(studies, epoch=1, goal="maximize")
    with trial.training():
        wandb.init()
        for loss in (1.0, 2.0, 3.0, 2.0, 0.0):
            wandb.log({"loss": loss})
        trial.complete()
    trial.finish_runs()
    assert studies.reports == [(2, {"loss": 3.0}), (3, {"loss": 0.0})]


def test_a_stopped_trial_ends_at_its_log_also_when_that_was_caught(wandb: ModuleType, store: Store) -> None:
    trial = trial_of(Decisions("stop"))
    with trial.training():
        with wandb.init() as run:
            wandb.log({"loss": 1.0})
            with pytest.raises(TrialStopped):
                wandb.log({"loss": 1.0})
        with pytest.raises(TrialStopped):
            run.log({"loss": 1.0})
        trial.complete()
    assert read_run(store, "nets", "nets-1.0000").status == "stopped"


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), OSError("database is locked")])
def test_training_goes_on_while_the_search_is_away_and_asks_it_once_a_minute(
    wandb: ModuleType, error: Exception
) -> None:
    studies = Decisions(error, "continue", "continue", "complete")
    trial = trial_of(studies)
    with trial.training():
        wandb.init()
        for loss in range(10):
            wandb.log({"loss": float(loss)})
        assert studies.reports == []
        trial._away_until = 0.0  # a minute later
        wandb.log({"loss": -1.0})
        assert studies.reports == [(1, {"loss": -1.0})]
        trial.complete()
    trial.finish_runs()
    assert [epoch for epoch, _ in studies.reports] == [1, 2, 3]


@pytest.mark.parametrize("bands", [(1, 3), ()])
def test_a_trial_that_another_agent_has_ends_at_its_next_log(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch, bands: tuple[int, ...]
) -> None:
    monkeypatch.setattr(sweep_trial, "LEASE_SECONDS", 0.001)
    trial = trial_of(Decisions(), bands=bands)
    with trial.training():
        wandb.init()
        wait_for(lambda: trial.stopped, 60, "the heartbeat was refused", every=0.001)
        with pytest.raises(TrialStopped, match="another agent has the trial"):
            wandb.log({"loss": 1.0})
    trial.finish_runs()


@pytest.mark.parametrize(
    ("data", "name", "value"),
    [
        ({"loss": 1}, "loss", 1.0),
        ({"val": {"loss": 2}}, "val.loss", 2.0),
        ({"val": {"loss": 2}}, "val/loss", 2.0),
        ({"val/loss": 3}, "val/loss", 3.0),
        ({"loss": "low"}, "loss", None),
        ({"loss": {"min": 1}}, "loss", None),
        ({"acc": 1}, "loss", None),
    ],
)
def test_a_metric_is_looked_up_as_w_and_b_names_it(data: Any, name: str, value: float | None) -> None:
    assert number_at(data, name) == value
