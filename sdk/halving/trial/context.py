"""The contract between a trainable and the platform that runs it: what a trial is given, and what it asks at
a rung.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol


class Controller(Protocol):
    """Decides how far a trial may train. The platform's controller asks the worker; tests have their own."""

    granted: int
    """Epochs granted so far: the trial trains up to this one and then asks."""

    def reached(
        self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
    ) -> int:
        """Report the objectives at the granted epoch and return the new grant; one that is not above
        ``epoch`` means: stop here.

        Args:
            epoch: epochs trained.
            values: metric to value, all finite: the summary of each objective, and the last value of each
                bounded metric.
            checkpoint: digest of the checkpoint saved at this epoch; a resume continues from it.
            best_checkpoint: where the first objective is summarised by its best value, digest of the
                checkpoint of that value's epoch.
        """


@dataclass(frozen=True)
class ObjectiveRule:
    """How a trial's reports of an objective are summarised in one value.

    Attributes:
        metric: its name in ``run.report``.
        summary: ``end`` (the value of the rung's own epoch), ``best`` (so far), or ``average`` (of the last
            ``window`` epochs that reported it).
        window: epochs.
        maximize: whether larger is better.
    """

    metric: str
    summary: str = "end"
    window: int = 1
    maximize: bool = True


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What the platform gives to a trial's process: plain data.

    The process has no connection and no credential but the store's.

    Attributes:
        objectives: the sweep's objectives, the main one first.
        bounded: metrics that must be reported, too, because the sweep bounds them at its rungs.
        divergence: metric to ``(min, max)``, in which None leaves an end open. A value outside, NaN or an
            infinity ends the trial at once.
        max_epochs: epochs at the last rung.
        grace_seconds: from SIGTERM to SIGKILL.
        train_on: stored splits of the dataset that together are the trial's train split.
        deterministic: as in :func:`halving.init`.
        start_from: the checkpoint of another run that a trial without one of its own goes on from, with the
            fields of :class:`halving.records.run_record.SavedCheckpoint`; its epochs count.
        resources: what this attempt was given of a machine or a cluster, with the names of the sweep's spec
            and a number for each; a rerun asks for the same.
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
    train_on: tuple[str, ...] = ("train",)
    parent: dict[str, Any]
    provenance: dict[str, Any] = field(repr=False)
    deterministic: bool = False
    start_from: dict[str, Any] | None = None
    resources: dict[str, Any] = field(default_factory=dict)

    def as_recorded(self) -> dict[str, Any]:
        """What the run's record has of it, beside its params, seed and parent: by this, the trial can be
        trained again.
        """
        given = asdict(self)
        return {name: given[name] for name in _RECORDED}

    @classmethod
    def from_record(cls, recorded: Mapping[str, Any], **given: Any) -> "TrialContext":
        """A context of what :meth:`as_recorded` gave, with ``given`` for the rest, as JSON has it."""
        known = {name: recorded[name] for name in _RECORDED if name in recorded} | given
        known["objectives"] = tuple(ObjectiveRule(**rule) for rule in known["objectives"])
        known["bounded"] = tuple(known["bounded"])
        known["train_on"] = tuple(known.get("train_on", ("train",)))
        known["divergence"] = {metric: (low, high) for metric, (low, high) in known["divergence"].items()}
        return cls(**known)


_OF_THE_ATTEMPT = {"root", "project", "run", "attempt", "params", "seed", "parent", "provenance"}
_RECORDED = [one.name for one in fields(TrialContext) if one.name not in _OF_THE_ATTEMPT]
