"""What passes between the scheduler and a worker: a trial handed out, what it reports, and that it is another's now."""

from dataclasses import dataclass

from halving.errors import HalvingError
from resources.catalog.trial_key import trial_key
from resources.search.suggest import Params


class Superseded(HalvingError, RuntimeError):
    """This attempt at the trial has lost its lease, and another attempt has the trial now."""


@dataclass(frozen=True)
class Assignment:
    """A trial given to a worker: everything needed to run it up to its next rung."""

    sweep: str
    trial: int
    attempt: int
    params: Params
    seed: int
    rung: int
    granted: int
    ladder: tuple[int, ...]

    @property
    def key(self) -> str:
        """The trial's name everywhere: its run id and its partition, ``digits-7f3a.0007``."""
        return trial_key(self.sweep, self.trial)

    @property
    def run_key(self) -> str:
        """What makes Dagster launch this attempt once: ``sweep.trial/rRUNG/aATTEMPT``."""
        return f"{self.key}/r{self.rung}/a{self.attempt}"


@dataclass(frozen=True)
class Report:
    """What a trial says at a rung.

    Attributes:
        values: every objective and bounded metric by name, finite.
        checkpoint: digest of the checkpoint at this epoch.
        epochs: epochs trained in all.
        best_checkpoint: digest of the best epoch's checkpoint, where the objective is the best value so far.
    """

    values: dict[str, float]
    checkpoint: str
    epochs: int
    best_checkpoint: str | None = None
