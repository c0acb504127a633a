"""Searches through Syne Tune's schedulers, called as its ``Tuner`` calls them."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
from syne_tune import config_space
from syne_tune.backend.trial_status import Trial
from syne_tune.optimizer import baselines
from syne_tune.optimizer.scheduler import SchedulerDecision, TrialScheduler
from syne_tune.optimizer.schedulers.median_stopping_rule import MedianStoppingRule

from benchmarks.peers.search_loop import main
from benchmarks.search_problems import EPOCHS, Params, Problem, Real, Whole


class Search:
    """One scheduler with trials in flight."""

    def __init__(self, strategy: str, searched: Problem, seed: int) -> None:
        # its search spaces and ASHA's choice of a bracket draw from the global generator
        np.random.seed(seed)
        space = {name: _domain(axis) for name, axis in searched.space.items()}
        self._scheduler = _STRATEGIES[strategy](space, seed)
        self._started = 0

    def start(self) -> tuple[Trial, Params]:
        suggestion = self._scheduler.suggest()
        trial = Trial(self._started, suggestion.config, datetime.now())
        self._started += 1
        self._scheduler.on_trial_add(trial)
        return trial, suggestion.config

    def report(self, trial: Trial, epoch: int, value: float) -> bool:
        if self._scheduler.on_trial_result(trial, _result(epoch, value)) == SchedulerDecision.CONTINUE:
            return True
        self._scheduler.on_trial_remove(trial)
        return False

    def finish(self, trial: Trial, value: float) -> None:
        result = _result(EPOCHS, value)
        if self._scheduler.on_trial_result(trial, result) == SchedulerDecision.CONTINUE:
            self._scheduler.on_trial_complete(trial, result)
        else:
            self._scheduler.on_trial_remove(trial)


def _result(epoch: int, value: float) -> dict[str, Any]:
    return {"value": value, "epoch": epoch}


def _domain(axis: Any) -> config_space.Domain:
    if isinstance(axis, Real):
        return config_space.uniform(axis.low, axis.high)
    if isinstance(axis, Whole):
        return config_space.randint(axis.low, axis.high)
    return config_space.choice(list(axis.choices))


def _full(name: str) -> Callable[..., TrialScheduler]:
    """A scheduler whose trials all train to the end."""
    kind = getattr(baselines, name)
    metric = {"metric": "value"}
    if name == "RandomSearch":
        metric = {"metrics": ["value"]}
    return lambda space, seed: kind(space, **metric, random_seed=seed)


def _halving(name: str, brackets: int = 1) -> Callable[..., TrialScheduler]:
    kind = getattr(baselines, name)
    rungs = {
        "time_attr": "epoch",
        "grace_period": 1,
        "max_t": EPOCHS,
        "reduction_factor": 3,
        "brackets": brackets,
    }
    return lambda space, seed: kind(space, metric="value", random_seed=seed, **rungs)


def _median(space: dict[str, Any], seed: int) -> TrialScheduler:
    search = _full("RandomSearch")(space, seed)
    return MedianStoppingRule(search, time_attr="epoch", metric="value", random_seed=seed)


_STRATEGIES = {
    "RandomSearch": _full("RandomSearch"),
    "TPE": _full("TPE"),
    "BORE": _full("BORE"),
    "BOTorch": _full("BOTorch"),
    "ASHA": _halving("ASHA"),
    "BOHB": _halving("BOHB"),
    "ASHA, 4 brackets": _halving("ASHA", 4),
    "BOHB, 4 brackets": _halving("BOHB", 4),
    "MedianStoppingRule, RandomSearch": _median,
}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    main("syne-tune", Search)
