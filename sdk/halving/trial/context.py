"""The contract between a trainable and the platform that runs it: what a trial is given, and what it asks at a rung."""

from dataclasses import dataclass, field
from typing import Any, Protocol


class Controller(Protocol):
    """Decides how far a trial may train. The platform's controller asks the worker; tests have their own."""

    granted: int
    """Epochs granted so far: the trial trains up to this one and then asks."""

    def reached(self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None) -> int:
        """Report the objectives at the granted epoch and return the new grant; one that is not above ``epoch`` means: stop here.

        Args:
            epoch: epochs trained.
            values: metric to value, all finite: the summary of each objective, and the last value of each bounded metric.
            checkpoint: digest of the checkpoint saved at this epoch; a resume continues from it.
            best_checkpoint: where the first objective is summarised by its best value, digest of the checkpoint of that value's epoch.
        """


@dataclass(frozen=True)
class ObjectiveRule:
    """How a trial's reports of an objective are summarised in one value.

    Attributes:
        metric: its name in ``run.report``.
        summary: ``end`` (the value of the rung's own epoch), ``best`` (so far), or ``average`` (of the last ``window`` epochs that
            reported it).
        window: epochs.
        maximize: whether larger is better.
    """

    metric: str
    summary: str = "end"
    window: int = 1
    maximize: bool = True


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What the platform gives to a trial's process: plain data. The process has no connection and no credential but the store's.

    Attributes:
        objectives: the sweep's objectives, the main one first.
        bounded: metrics that must be reported, too, because the sweep bounds them at its rungs.
        divergence: metric to ``(min, max)``, in which None leaves an end open. A value outside, NaN or an infinity ends the trial at once.
        max_epochs: epochs at the last rung.
        grace_seconds: from SIGTERM to SIGKILL.
        start_from: the checkpoint of another run that a trial without one of its own goes on from, with the fields of
            :class:`halving.records.run_record.SavedCheckpoint`; its epochs count.
    """

    root: str
    project: str
    run: str
    attempt: int
    params: dict[str, Any]
    seed: int
    objectives: tuple[ObjectiveRule, ...]
    bounded: tuple[str, ...] = ()
    divergence: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    max_epochs: int
    grace_seconds: float = 30.0
    dataset_name: str
    dataset_digest: str
    parent: dict[str, Any]
    provenance: dict[str, Any] = field(repr=False)
    start_from: dict[str, Any] | None = None
