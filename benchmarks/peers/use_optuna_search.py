"""Searches through Optuna's ask-and-tell interface: its samplers, alone and with its pruners."""

from typing import Any

import optuna

from benchmarks.peers.search_loop import main
from benchmarks.search_problems import EPOCHS, Params, Problem, Real, Whole


class Search:
    """One study with trials in flight."""

    def __init__(self, strategy: str, searched: Problem, seed: int) -> None:
        sampler, pruner = _STRATEGIES[strategy]
        self._study = optuna.create_study(
            direction="minimize", sampler=_SAMPLERS[sampler](seed), pruner=_PRUNERS[pruner]()
        )
        self._distributions = {name: _distribution(axis) for name, axis in searched.space.items()}

    def start(self) -> tuple[optuna.Trial, Params]:
        trial = self._study.ask(self._distributions)
        return trial, trial.params

    def report(self, trial: optuna.Trial, epoch: int, value: float) -> bool:
        trial.report(value, epoch)
        if not trial.should_prune():
            return True
        self._study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        return False

    def finish(self, trial: optuna.Trial, value: float) -> None:
        trial.report(value, EPOCHS)
        self._study.tell(trial, value)


def _distribution(axis: Any) -> optuna.distributions.BaseDistribution:
    if isinstance(axis, Real):
        return optuna.distributions.FloatDistribution(axis.low, axis.high)
    if isinstance(axis, Whole):
        return optuna.distributions.IntDistribution(axis.low, axis.high)
    return optuna.distributions.CategoricalDistribution(axis.choices)


_SAMPLERS = {
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed),
    "multivariate": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
}
_PRUNERS = {
    "none": optuna.pruners.NopPruner,
    "asha": lambda: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
    "hyperband": lambda: optuna.pruners.HyperbandPruner(
        min_resource=1, max_resource=EPOCHS, reduction_factor=3
    ),
    "median": optuna.pruners.MedianPruner,
}
_STRATEGIES = {
    "RandomSampler": ("random", "none"),
    "TPESampler": ("tpe", "none"),
    "TPESampler, multivariate": ("multivariate", "none"),
    "GPSampler": ("gp", "none"),
    "SuccessiveHalvingPruner, RandomSampler": ("random", "asha"),
    "SuccessiveHalvingPruner, TPESampler": ("tpe", "asha"),
    "HyperbandPruner, RandomSampler": ("random", "hyperband"),
    "HyperbandPruner, TPESampler": ("tpe", "hyperband"),
    "MedianPruner, RandomSampler": ("random", "median"),
    "MedianPruner, TPESampler": ("tpe", "median"),
}

if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    main("optuna", Search)
