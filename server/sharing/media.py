"""What a run logged beside numbers, as far as it fits into a page: images, texts, histograms, first rows."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from halving.errors import Damaged, InvalidInput, NotFound
from halving.store.store import Store, blob_name
from server.media.tables import table_rows

MAX_MEDIA = 24
"""On a page."""
MAX_BYTES = 600_000
"""Of all images of a page; as text they take a third more."""
_MAX_ROWS = 20
_MAX_LETTERS = 4_000
_MAX_HISTOGRAM = 200_000
_IMAGES = ("image/png", "image/jpeg")
_DESCRIBED = ("key", "kind", "step", "bytes", "caption", "width", "height")


class PackedMedia(NamedTuple):
    """Media of a page, and why others are not on it."""

    media: list[dict[str, Any]]
    left_out: list[str]


def read_media(store: Store, rows: Sequence[Mapping[str, Any]]) -> PackedMedia:
    """The newest media of a run, those of each key first.

    Args:
        rows: their records.

    Raises:
        StoreError: the store cannot be read.
    """
    packed: list[dict[str, Any]] = []
    skipped = 0
    bytes_left = MAX_BYTES
    for row in _newest_of_each_key(rows):
        if len(packed) == MAX_MEDIA:
            break
        content = _content(store, row, bytes_left)
        if content is None:
            skipped += 1
            continue
        bytes_left -= len(content.get("image", "")) * 3 // 4
        packed.append({name: row[name] for name in _DESCRIBED if name in row} | content)
    left_out = []
    if skipped:
        left_out.append(f"{skipped} media that are too large, of another kind or no longer in the store")
    more = len(rows) - len(packed) - skipped
    if more:
        left_out.append(f"{more} older media: a page has at most {MAX_MEDIA}")
    return PackedMedia(packed, left_out)


def _newest_of_each_key(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    newest = sorted(rows, key=lambda row: (-row["step"], row["key"]))
    counts: dict[str, int] = {}
    placed = []
    for row in newest:
        counts[row["key"]] = counts.get(row["key"], 0) + 1
        placed.append((counts[row["key"]], row))
    return [row for _, row in sorted(placed, key=lambda pair: pair[0])]


def _content(store: Store, row: Mapping[str, Any], bytes_left: int) -> dict[str, Any] | None:
    """What a page shows of a medium; None: nothing."""
    digest = row["digest"]
    size = int(row.get("bytes") or 0)
    media_type = row.get("media_type")
    try:
        if media_type in _IMAGES:
            if size > bytes_left:
                return None
            encoded = base64.b64encode(_first_bytes(store, digest, bytes_left)).decode()
            return {"image": f"data:{media_type};base64,{encoded}"}
        if row["kind"] == "text":
            text = _first_bytes(store, digest, 4 * _MAX_LETTERS).decode(errors="replace")
            return {"text": text[:_MAX_LETTERS], "cut": size > _MAX_LETTERS}
        if row["kind"] == "histogram" and size <= _MAX_HISTOGRAM:
            histogram = json.loads(_first_bytes(store, digest, _MAX_HISTOGRAM))
            if _is_histogram(histogram):
                return {"histogram": histogram}
        if row["kind"] == "table":
            return {"table": table_rows(store, digest, 0, _MAX_ROWS)}
    except (NotFound, InvalidInput, Damaged, UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        return None  # retention has deleted it, or it is not what its record says
    return None


def _is_histogram(value: Any) -> bool:
    """Whether the page can draw it: counts between edges, all of them numbers."""
    if not isinstance(value, dict):
        return False
    counts = value.get("counts")
    edges = value.get("edges")
    if not isinstance(counts, list) or not isinstance(edges, list) or len(edges) != len(counts) + 1:
        return False
    return bool(counts) and all(isinstance(number, int | float) for number in (*counts, *edges))


def _first_bytes(store: Store, digest: str, count: int) -> bytes:
    with store.open_file(blob_name(digest)) as file:
        return bytes(file.read(count))
