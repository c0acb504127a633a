"""What trackio logged at a step: numbers, texts, and media with files in its folder ``media``."""

from typing import Any

from halving.errors import InvalidInput
from halving.imports.step_values import NUMBERS, StepValues
from halving.ingest.media import Histogram, Table, Text


class TrackioValues(StepValues):
    """Adds one row of a database to a builder."""

    def _add_file(self, key: str, value: dict[str, Any]) -> None:
        kind = value["_type"]
        try:
            if kind == "trackio.image":
                self._add_medium(key, self._image(value["file_path"], value.get("caption")))
            elif str(kind) in _FILES:
                self._add_medium(key, self._file(_FILES[kind], value["file_path"], value.get("caption")))
            elif kind == "trackio.histogram":
                self._add_medium(key, Histogram(counts=value["values"], edges=value["bins"]))
            elif kind == "trackio.table":
                self._add_medium(key, self._table(value["_value"]))
            elif kind == "trackio.markdown":
                self._add_medium(key, Text(value["_value"], markdown=True))
            else:
                self._skipped.add(f"media of trackio's kind {kind!r:.60}")
        except FileNotFoundError:
            self._skipped.add("media whose file is not in trackio's folder media")
        except (
            InvalidInput,
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            IsADirectoryError,
            NotADirectoryError,
        ):
            self._skipped.add(f"media of trackio's kind {kind!r:.60} that have no form here, or are damaged")

    def _table(self, rows: list[dict[str, Any]]) -> Table:
        """Make a table of rows by the columns' names; a row need not have all of them."""
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = [_numbers_of([self._cell(row.get(name)) for row in rows]) for name in names]
        return Table(columns=names, rows=list(zip(*columns, strict=True)))

    def _cell(self, value: Any) -> Any:
        """A cell's value; None in the place of media."""
        cells = [value]
        if isinstance(value, list):
            cells = value
        if any(isinstance(cell, dict) and "_type" in cell for cell in cells):
            self._skipped.add("media in tables' cells (the tables are taken)")
            return None
        return value


_FILES = {"trackio.audio": "audio", "trackio.video": "video", "trackio.html": "html"}


def _numbers_of(cells: list[Any]) -> list[Any]:
    """Convert a column's cells to numbers if all of them are numbers.

    trackio writes NaN as a text.
    """
    numbers = [NUMBERS.get(cell, cell) if isinstance(cell, str) else cell for cell in cells]
    if all(number is None or isinstance(number, (int, float)) for number in numbers):
        return numbers
    return cells
