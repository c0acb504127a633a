"""What a step of W&B's history holds: numbers, texts, and media by their files in the run's folder."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from halving.errors import InvalidInput
from halving.imports.foreign_run import PieceBuilder, Skipped
from halving.ingest.media import Histogram, Image, Media, Table, Text

INTERNAL = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})
NOT_JSON = object()
_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}  # as strings, inside of lists and earlier


class Moment(NamedTuple):
    """Where values were logged: the record's place in the source, the step, and the time in ms since 1970."""

    place: str
    step: int
    time: int


def tree_of(items: Iterable[Any]) -> dict[str, Any]:
    """Items, each a leaf with the names that lead to it, as nested dicts; a value that cannot be read is ``NOT_JSON``."""
    tree: dict[str, Any] = {}
    for item in items:
        *outer, last = list(item.nested_key) or [item.key]
        inner = tree
        for name in outer:
            below = inner.get(name)
            if not isinstance(below, dict):
                below = inner[name] = {}
            inner = below
        inner[last] = _value(item)
    return tree


def _value(item: Any) -> Any:
    text = item.value_json or item.json
    if text:
        return parsed(text)
    for field in ("boolean", "integer", "number", "text"):
        if item.HasField(field):
            return getattr(item, field)
    return None


def parsed(text: str) -> Any:
    """A JSON value, or ``NOT_JSON``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NOT_JSON


def number_of(value: Any) -> float | None:
    """A number or bool as a float, None where it is none.

    Raises:
        OverflowError: an integer that no float64 holds.
    """
    if isinstance(value, str):
        return _NUMBERS.get(value)
    return float(value) if isinstance(value, (int, float)) else None


class StepValues:
    """Takes one step's values into a builder."""

    def __init__(self, builder: PieceBuilder, at: Moment, files: Path, skipped: Skipped) -> None:
        self._builder, self._at, self._files, self._skipped = builder, at, files, skipped
        self._media = 0

    def add(self, values: Mapping[str, Any], prefix: str = "") -> None:
        for name, value in values.items():
            if prefix or name not in INTERNAL:
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
            self._add_plain(key, value)

    def _add_plain(self, key: str, value: Any) -> None:
        try:
            number = number_of(value)
        except OverflowError:
            self._skipped.add("integers that a float64 does not hold")
            return
        if number is not None:
            self._builder.add(key, self._at.step, self._at.time, number)
            return
        try:
            self._add_medium(key, Text(value))
        except InvalidInput:
            self._skipped.add("texts that have no UTF-8 form")

    def _add_list(self, key: str, values: list[Any]) -> None:
        """A list of media, each by its number; one of anything else has no form here."""
        if values and all(isinstance(value, dict) and "_type" in value for value in values):
            for number, value in enumerate(values):
                self._add_file(f"{key}/{number}", value)
        else:
            self._skipped.add("lists in a history")

    def _add_file(self, key: str, value: dict[str, Any]) -> None:
        kind = value["_type"]
        if any(value.get(name) for name in ("masks", "boxes", "all_masks", "all_boxes")):
            self._skipped.add("images' masks and boxes (the images are taken)")
        try:
            if kind == "image-file":
                self._add_medium(key, self._image(value["path"], value.get("caption")))
            elif kind == "images/separated":
                captions = value.get("captions") or [None] * len(value["filenames"])
                for number, (path, caption) in enumerate(zip(value["filenames"], captions, strict=True)):
                    self._add_one(f"{key}/{number}", path, caption)
            elif kind == "histogram":
                self._add_medium(key, Histogram(counts=value["values"], edges=list(_edges(value))))
            elif kind == "table-file":
                table = json.loads(self._inside(value["path"]).read_bytes())
                self._add_medium(key, Table(columns=[str(name) for name in table["columns"]], rows=table["data"]))
            else:
                self._skipped.add(f"media of W&B's kind {kind!r:.60}")
        except FileNotFoundError:
            self._skipped.add(_GONE)
        except (InvalidInput, ValueError, TypeError, KeyError, AttributeError, IsADirectoryError, NotADirectoryError):
            self._skipped.add(f"media of W&B's kind {kind!r:.60} that have no form here, or are damaged")

    def _add_one(self, key: str, path: str, caption: Any) -> None:
        """One of several images: what is wrong with it does not keep the others from being taken."""
        try:
            self._add_medium(key, self._image(path, caption))
        except FileNotFoundError:
            self._skipped.add(_GONE)
        except (InvalidInput, TypeError, IsADirectoryError, NotADirectoryError):
            self._skipped.add("images that are no PNG or JPEG file, or are damaged")

    def _add_medium(self, key: str, media: Media) -> None:
        self._builder.add_media(f"{self._at.place}-{self._media:04d}", key, self._at.step, self._at.time, media)
        self._media += 1

    def _image(self, path: str, caption: Any) -> Image:
        return Image(self._inside(path).read_bytes(), caption=None if caption is None else str(caption))

    def _inside(self, name: str) -> Path:
        """A file of the run.

        Raises:
            InvalidInput: the name leads out of the run's folder, as a forged one does.
        """
        path = (self._files / name).resolve()
        if not path.is_relative_to(self._files.resolve()):
            raise InvalidInput(f"path {name!r} is not accepted: give one inside of the run's folder")
        return path


_GONE = "media whose file is not in the run's folder"


def _edges(value: Mapping[str, Any]) -> Iterator[float]:
    packed = value.get("packedBins")
    if packed is None:
        yield from value["bins"]
        return
    for number in range(len(value["values"]) + 1):
        yield packed["min"] + packed["size"] * number
