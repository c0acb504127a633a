"""A run that another tool recorded, in the terms of this project."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halving.errors import HalvingError
from halving.identifiers import sanitize_name
from halving.ingest.values import is_key

if TYPE_CHECKING:
    from halving.ingest.media import Media

Position = dict[str, list[int]]
"""How far a source was read: whole numbers by the name of a part of it, such as a file or a metric.

Only the source's reader understands them. They grow while it reads on, compared as lists are.
"""

PIECE_POINTS = 200_000
# The years 1 and 9999, in ms since 1970.
_EARLIEST = -62_135_596_800_000
_LATEST = 253_402_300_799_000


class SourceUnreadable(HalvingError, OSError):
    """A source, or a part of it, cannot be read; the message says which and why."""


class MediaPoint(NamedTuple):
    """A medium that was logged.

    ``place`` is its place in the source: letters, digits and ``-``, unique among the run's media. ``time`` is
    in ms since 1970.
    """

    place: str
    key: str
    step: int
    time: int
    media: "Media"


class Artifact(NamedTuple):
    """A file of a run, by its path there.

    ``open`` fetches it, and gives its content or a file that lasts as long as the ``with`` block.

    Attributes:
        size: bytes, if the source says so without fetching the file; else None.
    """

    name: str
    open: Callable[[], AbstractContextManager[bytes | Path]]
    size: int | None


class Piece(NamedTuple):
    """A part of a run's points in the order of logging, and how far the source is read with it.

    Attributes:
        keys: the distinct keys.
        codes: each point's place in ``keys``.
        steps, times (ms since 1970), values: one for each point.
    """

    keys: list[str]
    codes: list[int]
    steps: list[int]
    times: list[int]
    values: list[float]
    media: list[MediaPoint]
    position: Position


@dataclass
class Skipped:
    """Counts of what was not taken from a source, by reasons that complete the sentence "N … not taken"."""

    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str, count: int = 1) -> None:
        """Count what was not taken for a reason."""
        self.reasons[reason] += count


@dataclass(frozen=True)
class ForeignRun:
    """A run, as its tool describes it.

    Attributes:
        project, run: the names that it gets here; the same run always gets the same names.
        origin: the ``tool``, where the run is (``path`` or ``uri``), and its name there (``run``).
        params: hyperparameters; nested ones as dicts.
        tags: labels.
        started, ended: ISO 8601 in UTC; ``ended`` is None where the tool does not know.
        status: how it ended: ``finished``, ``failed``, ``terminated`` or ``crashed``; None while it seems to
            go on.
        pieces: reads the points that come after a position.
        provenance: what the tool knows of the code and the machine, as
            :func:`halving.records.provenance.capture` has it.
        artifacts: reads the run's files.
        summary: values that the tool shows for the whole run, where they need not be a metric's last points.
    """

    project: str
    run: str
    origin: dict[str, Any]
    params: dict[str, Any]
    tags: dict[str, str]
    started: str
    ended: str | None
    status: str | None
    pieces: Callable[[Position], Iterator[Piece]]
    provenance: dict[str, Any] = field(default_factory=dict)
    artifacts: Callable[[], Iterable[Artifact]] = tuple
    summary: dict[str, float] = field(default_factory=dict)


class PieceBuilder:
    """Collects points while a reader meets them, and counts in ``skipped`` those that are not accepted."""

    def __init__(self, skipped: Skipped, position: Mapping[str, list[int]]) -> None:
        self._skipped = skipped
        self.position: Position = {part: list(numbers) for part, numbers in position.items()}
        self._clear()

    def __len__(self) -> int:
        return len(self._values) + len(self._media)

    @property
    def media(self) -> int:
        """The number of media since the last piece."""
        return len(self._media)

    @property
    def full(self) -> bool:
        """Whether there is enough for a piece, so that the reader should take it."""
        return len(self._values) >= PIECE_POINTS or len(self._media) >= 1_000

    def add(self, key: str, step: int, time: int, value: float) -> None:
        """Add a point; ``time`` is in ms since 1970."""
        if self._accepts(key, step, time):
            self._codes.append(self._places.setdefault(key, len(self._places)))
            self._steps.append(step)
            self._times.append(time)
            self._values.append(value)

    def add_media(self, place: str, key: str, step: int, time: int, media: "Media") -> None:
        """Add a medium; ``place`` is as in :class:`MediaPoint`, and ``time`` is in ms since 1970."""
        if self._accepts(key, step, time):
            self._media.append(MediaPoint(place, key, step, time, media))

    def take(self) -> Piece:
        """Take what was collected since the last piece, with the position that the reader has set."""
        position = {part: list(numbers) for part, numbers in self.position.items()}
        piece = Piece(
            list(self._places), self._codes, self._steps, self._times, self._values, self._media, position
        )
        self._clear()
        return piece

    def _accepts(self, key: str, step: int, time: int) -> bool:
        if not is_key(key):
            self._skipped.add(
                "points with a name that is empty, longer than 256 characters or has control characters"
            )
        elif not -(2**63) <= step < 2**63:
            self._skipped.add("points with a step of more than 63 bits")
        elif not _EARLIEST <= time <= _LATEST:
            self._skipped.add("points with a time that no calendar has")
        else:
            return True
        return False

    def _clear(self) -> None:
        self._places: dict[str, int] = {}
        self._codes: list[int] = []
        self._steps: list[int] = []
        self._times: list[int] = []
        self._values: list[float] = []
        self._media: list[MediaPoint] = []


def run_name(name: str, identity: str) -> str:
    """Make a run's id of the usable part of its name and six digits that tell it from all others."""
    mark = hashlib.sha256(identity.encode()).hexdigest()[:6]
    return f"{sanitize_name(name, otherwise='run')[:121]}-{mark}"


def iso(milliseconds: float) -> str:
    """Convert ms since 1970 to the text of a time in records.

    A time beyond the calendar, such as one in ns, becomes its first or its last.
    """
    return datetime.fromtimestamp(min(max(milliseconds, _EARLIEST), _LATEST) / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
