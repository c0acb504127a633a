"""Samplers that a spec can name."""

import optuna


class OneObjective(optuna.samplers.RandomSampler):
    """It gives up on a study of several objectives, as CMA-ES does."""

    def infer_relative_search_space(
        self, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, optuna.distributions.BaseDistribution]:
        self._raise_error_if_multi_objective(study)
        return {}
