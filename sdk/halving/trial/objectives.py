"""A trial's objectives over its epochs: the value at the end, the best so far, or a moving average.

The tallies are saved in each checkpoint's record. A resumed trial continues with those of its checkpoint, so
that epochs which are trained again count once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from halving.errors import ObjectiveMissing
from halving.trial.context import ObjectiveRule


@dataclass
class _Tally:
    """A summary of one metric's reports up to an epoch.

    Attributes:
        epoch, value: the last report.
        best, best_epoch: the best value, and the first epoch that reported it.
        recent: the last values, as many as the average needs, the newest at the end.
    """

    epoch: int
    value: float
    best: float
    best_epoch: int
    recent: list[float]


class Tallies:
    """The objectives and the bounded metrics of a trial, over its complete epochs.

    Args:
        objectives, bounded: as in :class:`halving.trial.context.TrialContext`.
        record: the result of :meth:`as_record` for the checkpoint to continue from.

    Attributes:
        best_checkpoint: digest of the checkpoint of the first objective's best epoch; None where its best
            does not count, or that epoch saved none.
    """

    def __init__(
        self,
        objectives: tuple[ObjectiveRule, ...],
        bounded: tuple[str, ...],
        record: Mapping[str, Any] | None = None,
    ) -> None:
        self._objectives = objectives
        self._bounded = bounded
        saved = record or {}
        self._tallies = {metric: _Tally(**tally) for metric, tally in saved.get("metrics", {}).items()}
        self.best_checkpoint: str | None = saved.get("best_checkpoint")

    def as_record(self) -> dict[str, Any]:
        """Plain data for the checkpoint's record."""
        return {
            "metrics": {metric: asdict(tally) for metric, tally in self._tallies.items()},
            "best_checkpoint": self.best_checkpoint,
        }

    def is_objective(self, metric: str) -> bool:
        return any(rule.metric == metric for rule in self._objectives)

    def all_in(self, reported: Mapping[str, float]) -> bool:
        """Whether an epoch has reported every objective."""
        return all(rule.metric in reported for rule in self._objectives)

    def improved_by(self, reported: Mapping[str, float]) -> bool:
        """Whether these reports are the best so far, where the best value of the first objective counts."""
        if not self._objectives:
            return False
        main = self._objectives[0]
        if main.summary != "best" or main.metric not in reported:
            return False
        tally = self._tallies.get(main.metric)
        return tally is None or _is_better(reported[main.metric], tally.best, main.maximize)

    def add(self, epoch: int, reported: Mapping[str, float], checkpoint: str | None) -> None:
        """Count a complete epoch.

        Args:
            reported: metric to value; objectives and bounded metrics are finite.
            checkpoint: the digest of the epoch's checkpoint, if it saved one.
        """
        if self.improved_by(reported):
            self.best_checkpoint = checkpoint
        for rule in (*self._objectives, *(ObjectiveRule(metric) for metric in self._bounded)):
            if rule.metric in reported:
                self._count(rule, epoch, reported[rule.metric])

    def values(self, epoch: int, reported: Mapping[str, float]) -> dict[str, float]:
        """Each objective's summary at a complete epoch, and the last value of each bounded metric.

        Raises:
            ObjectiveMissing: one was not reported in this epoch, where the value at the end counts, or in no
                epoch.
        """
        values = {rule.metric: self._summary(rule, epoch, reported) for rule in self._objectives}
        for metric in self._bounded:
            if metric not in self._tallies:
                raise ObjectiveMissing(
                    f"metric {metric!r}, which the sweep bounds, was not reported up to epoch {epoch}: "
                    f"{_describe_reports(reported)}; call run.report({metric}=…), or remove it from the "
                    "sweep's bounds"
                )
            values.setdefault(metric, self._tallies[metric].value)
        return values

    def _count(self, rule: ObjectiveRule, epoch: int, value: float) -> None:
        tally = self._tallies.get(rule.metric)
        if tally is not None and tally.epoch == epoch:
            return  # It is counted already, because it is an objective and bounded.
        if tally is None:
            self._tallies[rule.metric] = _Tally(epoch, value, value, epoch, [value])
            return
        if _is_better(value, tally.best, rule.maximize):
            tally.best = value
            tally.best_epoch = epoch
        tally.epoch = epoch
        tally.value = value
        tally.recent = [*tally.recent, value][-rule.window :]

    def _summary(self, rule: ObjectiveRule, epoch: int, reported: Mapping[str, float]) -> float:
        tally = self._tallies.get(rule.metric)
        if tally is None or (rule.summary == "end" and tally.epoch != epoch):
            raise ObjectiveMissing(
                f"objective {rule.metric!r} was not reported in epoch {epoch}: "
                f"{_describe_reports(reported)}; call run.report({rule.metric}=…) in every epoch, or name "
                "another objective.metric in the sweep"
            )
        if rule.summary == "best":
            return tally.best
        if rule.summary == "average":
            return fmean(tally.recent)
        return tally.value


def _is_better(value: float, than: float, maximize: bool) -> bool:
    return value > than if maximize else value < than


def _describe_reports(reported: Mapping[str, float]) -> str:
    return f"it reported {sorted(reported)}" if reported else "it reported nothing"
