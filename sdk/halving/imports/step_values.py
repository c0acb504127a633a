"""What a tool logged at a step, as nested dicts of numbers, texts, and media of the tool's own kinds."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from halving.errors import InvalidInput
from halving.imports.foreign_run import PieceBuilder, Skipped
from halving.ingest.audio import Audio
from halving.ingest.html import Html
from halving.ingest.media import Image, Media, Text
from halving.ingest.video import Video

NOT_JSON = object()
# Numbers that JSON has no form for, and so are written as strings.
NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class LogPosition(NamedTuple):
    """Where values were logged: the record's place in the source, the step, and the time in ms since 1970."""

    place: str
    step: int
    time: int


def parse_json(text: str | bytes) -> Any:
    """Parse a JSON value; ``NOT_JSON`` if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NOT_JSON


def number_of(value: Any) -> float | None:
    """Convert a number or bool to a float; None for anything else.

    Raises:
        OverflowError: an integer that no float64 holds.
    """
    if isinstance(value, str):
        return NUMBERS.get(value)
    if isinstance(value, (int, float)):
        return float(value)
    return None


_FILES: dict[str, Callable[..., Media]] = {"audio": Audio, "video": Video, "html": Html}


class StepValues(ABC):
    """Adds one step's values to a builder.

    Attributes:
        internal: names that are the tool's own.
    """

    internal: frozenset[str] = frozenset()

    def __init__(self, builder: PieceBuilder, place: LogPosition, files: Path, skipped: Skipped) -> None:
        self._builder = builder
        self._place = place
        self._files = files
        self._skipped = skipped
        self._media = 0

    def add(self, values: Mapping[str, Any], prefix: str = "") -> None:
        """Add values by their names, nested ones joined by ``/``; ``prefix`` comes before each name."""
        for name, value in values.items():
            if prefix or name not in self.internal:
                self._add(f"{prefix}{name}", value)

    def _add(self, key: str, value: Any) -> None:
        if value is None:
            return
        if value is NOT_JSON:
            self._skipped.add("values that are not JSON")
        elif isinstance(value, dict) and "_type" in value:
            self._add_file(key, value)
        elif isinstance(value, dict):
            self.add(value, f"{key}/")
        elif isinstance(value, list):
            self._add_list(key, value)
        else:
            self._add_scalar(key, value)

    def _add_scalar(self, key: str, value: Any) -> None:
        try:
            number = number_of(value)
        except OverflowError:
            self._skipped.add("integers that a float64 does not hold")
            return
        if number is not None:
            self._builder.add(key, self._place.step, self._place.time, number)
            return
        try:
            self._add_medium(key, Text(value))
        except InvalidInput:
            self._skipped.add("texts that have no UTF-8 form")

    def _add_list(self, key: str, values: list[Any]) -> None:
        """Add a list of media, each under its number; a list of anything else has no form here."""
        if values and all(isinstance(value, dict) and "_type" in value for value in values):
            for number, value in enumerate(values):
                self._add_file(f"{key}/{number}", value)
        else:
            self._skipped.add("lists in a history")

    @abstractmethod
    def _add_file(self, key: str, value: dict[str, Any]) -> None:
        """Add a medium, which is a dict with a ``_type``; one that cannot be taken is counted."""

    def _add_medium(self, key: str, media: Media) -> None:
        self._builder.add_media(
            f"{self._place.place}-{self._media:04d}", key, self._place.step, self._place.time, media
        )
        self._media += 1

    def _image(self, path: str, caption: Any) -> Image:
        if caption is not None:
            caption = str(caption)
        return Image(self._inside(path).read_bytes(), caption=caption)

    def _file(self, kind: str, path: str, caption: Any) -> Media:
        """Sound, a video or HTML of a file.

        Args:
            kind: ``audio``, ``video`` or ``html``.
        """
        if caption is not None:
            caption = str(caption)
        return _FILES[kind](self._inside(path).read_bytes(), caption=caption)

    def _inside(self, name: str) -> Path:
        """The path of a file of the run.

        Raises:
            InvalidInput: the name leads out of the run's folder, as a forged one does.
        """
        path = (self._files / name).resolve()
        if not path.is_relative_to(self._files.resolve()):
            raise InvalidInput(f"path {name!r} is not accepted: give one inside of the run's folder")
        return path
