"""What a reader gives of a run that another tool recorded, in our terms."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from halving.errors import HalvingError
from halving.identifiers import plain_name
from halving.ingest.values import is_key

if TYPE_CHECKING:
    from halving.ingest.media import Media

Position = dict[str, list[int]]
"""How far a source was read: the name of a part of it (a file, a metric) to whole numbers that only its
reader understands, and that grow while it reads on, as lists do.
"""

PIECE_POINTS = 200_000
# ms since 1970: the years 1 and 9999
_EARLIEST = -62_135_596_800_000
_LATEST = 253_402_300_799_000


class SourceUnreadable(HalvingError, OSError):
    """A source, or a part of it, cannot be read; the message says which and why."""


class MediaPoint(NamedTuple):
    """A medium that was logged.

    ``place`` says where it is in the source: letters, digits and ``-``, and never another medium's. ``time``
    is in ms since 1970.
    """

    place: str
    key: str
    step: int
    time: int
    media: "Media"


class Artifact(NamedTuple):
    """A file of a run, by its path there.

    It is fetched by ``open``, which gives its content, or a file that has it while the ``with`` block lasts.

    Attributes:
        size: bytes, as the source says without fetching it; None where it does not.
    """

    name: str
    open: Callable[[], AbstractContextManager[bytes | Path]]
    size: int | None


class Piece(NamedTuple):
    """A part of a run's points, in the order of logging, and how far the source is read with it.

    Attributes:
        keys: the distinct keys.
        codes: each point's place in ``keys``.
        steps, times (ms since 1970), values: of as many points.
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
    """What of a source was not taken: the reason, in words that a sentence "N … not taken" has, to how
    many.
    """

    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str, count: int = 1) -> None:
        self.reasons[reason] += count


@dataclass(frozen=True)
class ForeignRun:
    """A run, by what its tool says of it.

    Attributes:
        project, run: the names that it gets here; the same for the same run, whenever it is read.
        origin: the ``tool``, where the run is (``path`` or ``uri``), and what the tool calls it (``run``).
        params: hyperparameters; nested ones as dicts.
        tags: labels.
        started, ended: ISO 8601 in UTC; ``ended`` is None where the tool does not know.
        status: how it ended: ``finished``, ``failed``, ``terminated`` or ``crashed``; None while it goes on,
            as far as is known.
        pieces: reads the points that come after a position.
        provenance: what the tool knows of the code and the machine, as
            :func:`halving.records.provenance.capture` has it.
        artifacts: reads the run's files.
        summary: what the tool shows as a metric's value of the whole run, where that need not be its last
            point.
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
    """Gathers points as a reader meets them; what our names and numbers do not take goes to ``skipped``."""

    def __init__(self, skipped: Skipped, position: Mapping[str, list[int]]) -> None:
        self._skipped = skipped
        self.position: Position = {part: list(numbers) for part, numbers in position.items()}
        self._clear()

    def __len__(self) -> int:
        return len(self._values) + len(self._media)

    @property
    def media(self) -> int:
        """How many media were gathered since the last piece."""
        return len(self._media)

    @property
    def full(self) -> bool:
        return len(self._values) >= PIECE_POINTS or len(self._media) >= 1_000

    def add(self, key: str, step: int, time: int, value: float) -> None:
        """Take a point; ``time`` is in ms since 1970."""
        if self._accepts(key, step, time):
            self._codes.append(self._places.setdefault(key, len(self._places)))
            self._steps.append(step)
            self._times.append(time)
            self._values.append(value)

    def add_media(self, place: str, key: str, step: int, time: int, media: "Media") -> None:
        if self._accepts(key, step, time):
            self._media.append(MediaPoint(place, key, step, time, media))

    def take(self) -> Piece:
        """What was gathered since the last time, with the position that the reader has set meanwhile."""
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
    """A run's id: what can be used of its name there, and six digits of what tells it from all others."""
    mark = hashlib.sha256(identity.encode()).hexdigest()[:6]
    return f"{plain_name(name, otherwise='run')[:121]}-{mark}"


def iso(milliseconds: float) -> str:
    """A time in ms since 1970, as records have it; the first or the last of the calendar where it is beyond,
    such as one in ns.
    """
    return datetime.fromtimestamp(min(max(milliseconds, _EARLIEST), _LATEST) / 1000, UTC).isoformat(
        timespec="milliseconds"
    )
