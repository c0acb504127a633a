"""What an MLflow server or store is asked for, in whichever of its forms it is: see ``mlflow_server`` and
``mlflow_folder``.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from halving.imports.reading import Unreadable


class Experiment(NamedTuple):
    id: str
    name: str


class Entry(NamedTuple):
    """One value of a metric's history; ``time`` is in ms since 1970."""

    step: int
    time: int
    value: float


@dataclass(frozen=True)
class MlflowRun:
    """A run as MLflow has it: ``started`` and ``ended`` in ms since 1970, ``metrics`` the names, ``datasets``
    as ``NAME@DIGEST``.

    ``contexts`` is how many tags its datasets have, such as for what they were used.
    """

    id: str
    name: str
    status: str
    started: int
    ended: int | None
    artifact_uri: str
    params: dict[str, str]
    tags: dict[str, str]
    metrics: list[str]
    datasets: list[str] = field(default_factory=list)
    contexts: int = 0


class MlflowFile(NamedTuple):
    """A file of a run by its path; ``open`` fetches it, ``size`` is in bytes where the source says it."""

    path: str
    open: Callable[[], AbstractContextManager[bytes | Path]]
    size: int | None


class MlflowSource(Protocol):
    """A server, a database or a folder.

    Every method raises :class:`~halving.imports.foreign_run.SourceUnreadable` where it fails as a whole; an
    experiment or a run that cannot be read, where others can, is given as such.

    Attributes:
        schemes: of the artifact addresses whose files it can give.
    """

    schemes: Collection[str]

    def experiments(self) -> list[Experiment | Unreadable]:
        """Those that are not deleted."""

    def runs(self, experiment: Experiment) -> Iterator[MlflowRun | Unreadable]:
        """Those of an experiment that are not deleted."""

    def history(self, run: MlflowRun, metric: str) -> Iterator[Entry]:
        """All values of a metric, in the order of their times."""

    def files(self, run: MlflowRun) -> Iterator[MlflowFile]:
        """All artifacts of a run."""

    def left_out(self) -> dict[str, int]:
        """What it holds that is not copied: in words, and how many."""
