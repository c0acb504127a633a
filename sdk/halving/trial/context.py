"""The contract between a trainable and the platform: a trial's context, and its question at a rung."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol


class Controller(Protocol):
    """Decides how far a trial may train; the platform's controller asks the worker."""

    granted: int
    """Epochs granted so far, after which the trial reports and asks again."""

    def report_rung(
        self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
    ) -> int:
        """Report the objectives at the granted epoch and return the new grant.

        A grant that is not above ``epoch`` means that the trial stops here.

        Args:
            epoch: epochs trained.
            values: metric to value, all finite: the summary of each objective, and the last value of each
                bounded metric.
            checkpoint: the digest of this epoch's checkpoint, from which a resume continues.
            best_checkpoint: the digest of the best epoch's checkpoint, where the best value of the first
                objective counts.
        """


@dataclass(frozen=True)
class ObjectiveRule:
    """A rule that summarises a trial's reports of an objective in one value.

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
    """The description of a trial for its process, as plain data.

    The process has no connection and no credential but the store's.

    Attributes:
        objectives: the sweep's objectives, the main one first.
        bounded: metrics that must be reported, too, because the sweep bounds them at its rungs.
        divergence: metric to ``(min, max)``, in which None leaves an end open. A value outside, NaN or an
            infinity ends the trial at once.
        max_epochs: epochs at the last rung.
        grace_seconds: the time from SIGTERM to SIGKILL.
        train_on: stored splits of the dataset that together are the trial's train split.
        deterministic: as in :func:`halving.init`.
        start_from: the checkpoint of another run from which a trial without one of its own continues, with
            the fields of :class:`halving.records.run_record.SavedCheckpoint`; its epochs count.
        resources: this attempt's resources of a machine or a cluster, with the names of the sweep's spec and
            a number for each; a rerun requests the same.
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
        """The part for the run's record, which a rerun needs beside params, seed and parent."""
        values = asdict(self)
        return {name: values[name] for name in _RECORDED}

    @classmethod
    def from_record(cls, recorded: Mapping[str, Any], **rest: Any) -> "TrialContext":
        """Create a context from :meth:`as_recorded` and the ``rest``, both as JSON has them."""
        values = {name: recorded[name] for name in _RECORDED if name in recorded} | rest
        values["objectives"] = tuple(ObjectiveRule(**rule) for rule in values["objectives"])
        values["bounded"] = tuple(values["bounded"])
        values["train_on"] = tuple(values.get("train_on", ("train",)))
        values["divergence"] = {metric: (low, high) for metric, (low, high) in values["divergence"].items()}
        return cls(**values)


_OF_THE_ATTEMPT = {"root", "project", "run", "attempt", "params", "seed", "parent", "provenance"}
_RECORDED = [field.name for field in fields(TrialContext) if field.name not in _OF_THE_ATTEMPT]
