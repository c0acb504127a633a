"""Samplers that a spec can name."""

import optuna


class SingleObjective(optuna.samplers.RandomSampler):
    """A sampler that refuses several objectives, like CMA-ES."""

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, optuna.distributions.BaseDistribution]:
        self._raise_error_if_multi_objective(study)
        return {}


class NeedsAPackage(optuna.samplers.RandomSampler):
    """A sampler whose package is not installed."""

    def __init__(self) -> None:
        import package_that_is_missing  # noqa: F401

        super().__init__()
