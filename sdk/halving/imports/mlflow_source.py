"""What a source of MLflow's runs provides, whether it is a server, a database or a folder.

See ``mlflow_server`` and ``mlflow_folder``.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from halving.imports.reading import Unreadable


class Experiment(NamedTuple):
    """An experiment of MLflow, by its id and the name that people gave it."""

    id: str
    name: str


class Entry(NamedTuple):
    """One value of a metric's history; ``time`` is in ms since 1970."""

    step: int
    time: int
    value: float


@dataclass(frozen=True)
class MlflowRun:
    """A run as MLflow describes it.

    ``started`` and ``ended`` are in ms since 1970, ``metrics`` are names, and ``datasets`` have the form
    ``NAME@DIGEST``. ``contexts`` counts the tags of its datasets, such as what they were used for.
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
    """A file of a run by its path; ``open`` fetches it, and ``size`` is in bytes if the source says so."""

    path: str
    open: Callable[[], AbstractContextManager[bytes | Path]]
    size: int | None


class MlflowSource(Protocol):
    """A server, a database or a folder.

    Every method raises :class:`~halving.imports.foreign_run.SourceUnreadable` if it fails as a whole. An
    experiment or a run that cannot be read, while others can, is returned as ``Unreadable``.

    Attributes:
        schemes: the schemes of artifact addresses whose files the source can give.
    """

    schemes: Collection[str]

    def experiments(self) -> list[Experiment | Unreadable]:
        """The experiments that are not deleted."""

    def runs(self, experiment: Experiment) -> Iterator[MlflowRun | Unreadable]:
        """The runs of an experiment that are not deleted."""

    def history(self, run: MlflowRun, metric: str) -> Iterator[Entry]:
        """All values of a metric, in the order of their times."""

    def files(self, run: MlflowRun) -> Iterator[MlflowFile]:
        """All artifacts of a run."""

    def left_out(self) -> dict[str, int]:
        """Count what the source has that is not copied, by its name in plain words."""
