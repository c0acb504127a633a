"""The seam between a trainable and whoever runs it: what a trial is given, and whom it asks at a rung."""

from dataclasses import dataclass, field
from typing import Any, Protocol


class Controller(Protocol):
    """Whoever decides how far a trial may train. The platform's speaks over a pipe; tests bring their own."""

    objective: str
    """The metric that :meth:`reached` wants."""

    granted: int
    """Epochs granted so far: the trial trains up to here and then asks."""

    def reached(self, epoch: int, value: float, checkpoint: str) -> int:
        """Report the objective at the granted epoch and get the new grant; no more than ``epoch`` means: stop here.

        Args:
            epoch: epochs trained.
            value: the objective there, finite.
            checkpoint: digest of the checkpoint saved at this epoch.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TrialContext:
    """What the platform hands to a trial's process: plain data, no connection and no credential but the store's."""

    root: str
    project: str
    run: str
    attempt: int
    params: dict[str, Any]
    seed: int
    objective: str
    dataset_name: str
    dataset_digest: str
    parent: dict[str, Any]
    provenance: dict[str, Any] = field(repr=False)
