"""What a step of W&B's history holds: numbers, texts, and media by their files in the run's folder."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from halving.errors import InvalidInput
from halving.imports.step_values import StepValues, parse_json
from halving.ingest.media import Histogram, Table, edges_around


def tree_of(items: Iterable[Any]) -> dict[str, Any]:
    """Nest items by the names that lead to each; a value that cannot be read is ``NOT_JSON``."""
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
        return parse_json(text)
    for field in ("boolean", "integer", "number", "text"):
        if item.HasField(field):
            return getattr(item, field)
    return None


class HistoryValues(StepValues):
    """Adds one step of a history to a builder."""

    internal = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})

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
                    self._add_image(f"{key}/{number}", path, caption)
            elif str(kind) in _FILES:
                self._add_medium(key, self._file(_FILES[kind], value["path"], value.get("caption")))
            elif str(kind) in _LISTS:
                self._add_files(key, value, kind)
            elif kind == "histogram":
                self._add_medium(key, Histogram(counts=value["values"], edges=list(_edges(value))))
            elif kind == "table-file":
                table = json.loads(self._inside(value["path"]).read_bytes())
                self._add_medium(
                    key, Table(columns=[str(name) for name in table["columns"]], rows=table["data"])
                )
            else:
                self._skipped.add(f"media of W&B's kind {kind!r:.60}")
        except FileNotFoundError:
            self._skipped.add(_GONE)
        except (
            InvalidInput,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            IsADirectoryError,
            NotADirectoryError,
        ):
            self._skipped.add(f"media of W&B's kind {kind!r:.60} that have no form here, or are damaged")

    def _add_files(self, key: str, value: Mapping[str, Any], kind: str) -> None:
        """Add several sounds, videos or pages that were logged under one name."""
        captions = value.get("captions") or [None] * len(value[kind])
        for number, (each, caption) in enumerate(zip(value[kind], captions, strict=True)):
            item = {"caption": caption, **each, "_type": f"{kind.removesuffix('s')}-file"}
            self._add_file(f"{key}/{number}", item)

    def _add_image(self, key: str, path: str, caption: Any) -> None:
        """Add one of several images; if it is faulty, the others are taken all the same."""
        try:
            self._add_medium(key, self._image(path, caption))
        except FileNotFoundError:
            self._skipped.add(_GONE)
        except (InvalidInput, TypeError, IsADirectoryError, NotADirectoryError):
            self._skipped.add("images that are no PNG or JPEG file, or are damaged")


_FILES = {"audio-file": "audio", "video-file": "video", "html-file": "html"}
_LISTS = frozenset({"audio", "videos", "html"})  # Each has its items in a field of its own name.
_GONE = "media whose file is not in the run's folder"


def _edges(value: Mapping[str, Any]) -> Iterator[float]:
    packed = value.get("packedBins")
    if packed is None:
        bins = value["bins"]
        if len(bins) == 2 and bins[0] == bins[1]:  # W&B's histogram of one gradient, or of equal ones
            bins = edges_around(bins[0])
        yield from bins
        return
    for number in range(len(value["values"]) + 1):
        yield packed["min"] + packed["size"] * number
