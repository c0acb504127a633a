"""What a row of neptune-exporter holds: a param, a point of a series, or a medium."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from halving.errors import InvalidInput
from halving.imports.foreign_run import PieceBuilder, Skipped
from halving.imports.neptune_files import FILE_TYPES, Files
from halving.imports.neptune_parts import STEP_UNIT, Batch
from halving.ingest.media import Histogram, Image, Media, Text

PARAM_TYPES = ("int", "float", "string", "bool", "datetime", "string_set")
_SERIES = {
    "float_series": "float_value",
    "string_series": "string_value",
    "histogram_series": "histogram_value",
    "file_series": "file_value",
}
_NO_VALUE = "points of series that have a time, but no value"


def param_of(row: dict[str, Any]) -> Any:
    """A row's value as a param; None where the run has no value, for which the exporter writes a row, too.

    Raises:
        ValueError: a date that no calendar has.
    """
    value = row[f"{row['attribute_type']}_value"]
    if value is None:
        return None
    if row["attribute_type"] == "datetime":
        try:
            return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
        except (OverflowError, OSError):
            raise ValueError("a date that no calendar has") from None
    if row["attribute_type"] == "string_set":
        return sorted(text for text in value if text is not None)
    return value


def is_console(path: str) -> bool:
    """Whether a series of texts is what the run printed.

    Neptune 2 keeps it below ``monitoring/``, Neptune 3 in ``runtime/``.
    """
    return path.startswith("monitoring/") or path in ("runtime/stdout", "runtime/stderr")


class StepScale:
    """Makes whole numbers of a run's steps.

    Where some have fractions, all are multiplied by the smallest power of ten that removes them.
    """

    def __init__(self) -> None:
        self._digits = 0

    def learn(self, steps: Any) -> None:
        """Take account of steps, an Arrow array in millionths."""
        numbers = steps.drop_null().to_numpy(zero_copy_only=False)
        while (numbers % (STEP_UNIT // 10**self._digits)).any():
            self._digits += 1

    @property
    def factor(self) -> int:
        """The power of ten by which steps are multiplied; 1 where all are whole numbers."""
        return int(10**self._digits)

    def whole(self, step: int) -> int:
        """Convert a step in millionths to the run's step here."""
        return step // (STEP_UNIT // self.factor)


class SeriesValues:
    """Adds rows of a run's series to a builder, one by one, in the order of the export.

    Args:
        started: ms since 1970; the time of what was logged without one.
    """

    def __init__(
        self, builder: PieceBuilder, files: Files, scale: StepScale, started: int, skipped: Skipped
    ) -> None:
        self._builder = builder
        self._files = files
        self._scale = scale
        self._started = started
        self._skipped = skipped
        self._lengths: Counter[tuple[str, str]] = Counter()

    def add_rows(self, batch: Batch, mark: str, rest: int, absent: set[int]) -> Iterator[int]:
        """Add the rows from number ``rest`` on and those of ``absent``, and yield the number of each.

        Args:
            mark: the mark of the part that the rows are in.
            absent: rows whose files were not there. Those whose files are not there now are added to it, and
                the others are removed.
        """
        names = ("attribute_path", "attribute_type", "step", "timestamp", "float_value")
        columns = (batch.rows.column(name).to_pylist() for name in names)
        for place, (number, path, kind, step, time, value) in enumerate(
            zip(batch.numbers, *columns, strict=True)
        ):
            whole = self._whole_step(path, kind, step)
            if number < rest and number not in absent:
                continue
            logged_at = self._started
            if time is not None:
                logged_at = time
            if kind == "float_series" and value is not None:
                self._builder.add(path, whole, logged_at, value)
            elif kind in _SERIES:
                value = batch.rows.column(_SERIES[kind])[place].as_py()
                medium = self._medium(kind, path or "", number, value, absent)
                if medium is not None:
                    self._builder.add_media(f"{mark}-{number:012d}", path, whole, logged_at, medium)
                elif value is None and time is not None:
                    self._skipped.add(_NO_VALUE)
            elif kind not in (*PARAM_TYPES, *FILE_TYPES):
                self._skipped.add(f"attributes of Neptune's type {kind!r:.60}")
            yield number

    def _whole_step(self, path: str, kind: str, step: int | None) -> int:
        """The step of a row; in a series without steps the rows are counted."""
        if step is None and kind in _SERIES:
            step = self._lengths[path, kind] * STEP_UNIT
            self._lengths[path, kind] += 1
        return self._scale.whole(step or 0)

    def _medium(self, kind: str, path: str, number: int, value: Any, absent: set[int]) -> Media | None:
        """Make a medium of a value.

        None stands for a line that the run printed, a file that is no image, and a value without a form here.
        """
        if value is None:
            return None
        if kind == "file_series":
            return self._image(number, value["path"], absent)
        if kind == "string_series" and is_console(path):
            return None
        if kind == "string_series":
            return Text(value)
        try:
            return _histogram(value)
        except (InvalidInput, TypeError, ValueError):
            self._skipped.add("histograms whose edges do not grow, or that are damaged")
            return None

    def _image(self, number: int, file: str | None, absent: set[int]) -> Image | None:
        absent.discard(number)
        if file is None:
            return None
        if self._files.is_absent(file):
            absent.add(number)
        return self._files.image(file)


def _histogram(value: dict[str, Any]) -> Histogram:
    """Make a histogram; of densities each bin counts its density times its width."""
    edges = value["edges"]
    counts = value["values"]
    if str(value["type"]).upper() == "DENSITY":
        counts = [
            density * (right - left) for density, (left, right) in zip(counts, pairwise(edges), strict=True)
        ]
    return Histogram(counts=counts, edges=edges)
