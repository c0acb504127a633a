"""A trial handed out to a worker, and the error for a worker that has lost it."""

from dataclasses import dataclass, field

from halving.errors import HalvingError
from resources.catalog.trial_key import trial_key
from resources.sweep_spec.points import Params


class Superseded(HalvingError, RuntimeError):
    """This attempt at the trial is over: it lost its lease, or the trial was given up or handed out anew."""


@dataclass(frozen=True)
class Assignment:
    """A trial given to a worker, with everything that is needed to run it up to its next rung.

    Attributes:
        granted: the epoch of that rung.
        final: the number of the seed, from 0, if the trial belongs to the final training; else None.
    """

    sweep: str
    trial: int
    attempt: int
    params: Params
    seed: int
    rung: int
    granted: int
    ladder: tuple[int, ...]
    final: int | None = field(default=None, kw_only=True)

    @property
    def key(self) -> str:
        """The trial's key: its run id and its partition, ``digits-7f3a.0007``."""
        return trial_key(self.sweep, self.trial)

    @property
    def run_key(self) -> str:
        """The key ``sweep.trial/rRUNG/aATTEMPT``, for which Dagster launches one run."""
        return f"{self.key}/r{self.rung}/a{self.attempt}"
