"""``wandb.Table``: rows that may be added one by one, and media in cells."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

from halving.errors import InvalidInput
from halving.ingest.media import Media as StoredMedia
from halving.ingest.media import Table as StoredTable
from halving.query.json_values import jsonable
from halving.wandb.wb_value import Media, Stored, WBValue

_LOG_MODES = (None, "IMMUTABLE", "MUTABLE", "INCREMENTAL")
_MAX_NESTED = 50
_COLUMNS = ("Input", "Output", "Expected")  # W&B's


class Table(Media):
    """Rows and columns. What a table has when it is logged is what is stored, as Parquet.

    A cell with media holds ``{"bytes": …, "path": …}``, the form in which Hugging Face's datasets have images
    and sound. A column whose values Arrow can not hold as one kind (``allow_mixed_types``) becomes text:
    strings as they are, everything else as JSON.

    Args:
        columns: names; texts or integers.
        data: rows, an array of two dimensions, or a DataFrame.
        dataframe: instead of ``columns`` and ``data``.
        dtype, optional: types of columns: ``None`` is always accepted, and values are checked against those
            that the column has already.
        allow_mixed_types: columns may have values of several kinds.
        log_mode: as in W&B; each call of ``log`` stores all rows that the table has then.

    Raises:
        TypeError: a value is of another kind than those in its column.
        ValueError: a row has another length than ``columns``.
    """

    MAX_ROWS = 10_000
    MAX_ARTIFACT_ROWS = 200_000
    _log_type = "table"

    def __init__(
        self,
        columns: list[Any] | None = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        dtype: Any = None,
        optional: bool | list[bool] = True,
        allow_mixed_types: bool = False,
        log_mode: str | None = "IMMUTABLE",
    ) -> None:
        del dtype, optional
        if log_mode not in _LOG_MODES:
            raise ValueError(
                f"log_mode {log_mode!r} is not accepted: give 'IMMUTABLE', 'MUTABLE' or 'INCREMENTAL'"
            )
        self.log_mode = log_mode
        self._allows_mixed = allow_mixed_types
        self._kinds: dict[Any, str] = {}
        self.data: list[list[Any]] = []
        if dataframe is None and _is_frame(data):
            dataframe = data
        if dataframe is not None:
            columns = list(dataframe.columns)
            data = zip(*(dataframe[column].values for column in columns), strict=True)
        elif data is None:
            data = rows
        self.columns: list[Any] = _checked_columns(columns)
        for row in [] if data is None else data:
            self.add_data(*row)

    def add_data(self, *data: Any) -> None:
        """Add a row, with a value for each column."""
        if len(data) != len(self.columns):
            raise ValueError(
                f"This table expects {len(self.columns)} columns: {self.columns}, found {len(data)}"
            )
        kinds = {}
        for column, value in zip(self.columns, data, strict=True):
            kinds[column] = self._kind_after(column, value)
        self._kinds |= kinds
        self.data.append(list(data))

    def add_row(self, *row: Any) -> None:
        """Add a row, as older scripts do."""
        self.add_data(*row)

    def add_column(self, name: str, data: Any, optional: bool = False) -> None:
        """Add a column, with a value for each row."""
        if not isinstance(name, str) or name in self.columns:
            raise ValueError(f"column {name!r} is not accepted: give a new name")
        values = list(data)
        if not self.columns:
            self.data = [[] for _ in values]
        if len(values) != len(self.data):
            raise ValueError(
                f"column {name!r} is not accepted: Expected length {len(self.data)}, found {len(values)}"
            )
        for value in values:
            self._kinds[name] = self._kind_after(name, value)
        self.columns.append(name)
        for row, value in zip(self.data, values, strict=True):
            row.append(value)

    def get_column(self, name: Any, convert_to: str | None = None) -> Any:
        """A column's values as a list, or as an array with ``convert_to="numpy"``."""
        place = self.columns.index(name)
        values = [row[place] for row in self.data]
        if convert_to is None:
            return values
        import numpy as np

        return np.array(values)

    def get_dataframe(self) -> Any:
        """The table as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame.from_records(self.data, columns=self.columns)

    def get_index(self) -> list[int]:
        """The rows' numbers."""
        return list(range(len(self.data)))

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Each row with its number."""
        yield from enumerate(self.data)

    def add_computed_columns(self, fn: Callable[[int, dict[Any, Any]], dict[str, Any]]) -> None:
        """Add columns that a function computes of a row's number and its values by name."""
        added: dict[str, list[Any]] = {}
        for number, row in self.iterrows():
            for name, value in fn(number, dict(zip(self.columns, row, strict=True))).items():
                added.setdefault(name, []).append(value)
        for name, values in added.items():
            self.add_column(name, values)

    def cast(self, col_name: Any, dtype: Any, optional: bool = False) -> None:
        """Check that the column exists: its values keep their own types."""
        self.columns.index(col_name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and (self.columns, self.data) == (other.columns, other.data)

    def __hash__(self) -> int:
        return id(self)

    def to_media(self) -> Stored:
        import pyarrow as pa

        names = [_as_utf8(str(column)) for column in self.columns]
        columns = [_column([row[place] for row in self.data]) for place in range(len(names))]
        return StoredTable(pa.Table.from_arrays(columns, names=_different(names)))

    def _kind_after(self, column: Any, value: Any) -> str:
        """The column's kind with a value more."""
        before = self._kinds.get(column, "none")
        kind = _kind(value)
        if kind == "none" or self._allows_mixed:
            return before
        if before not in ("none", kind):
            raise TypeError(
                f"Data row contained incompatible types: column {column!r} has values of the kind {before}, "
                f"and {value!r:.80} is {kind}; wandb.Table(…, allow_mixed_types=True) accepts it"
            )
        return kind


def _checked_columns(columns: Any) -> list[Any]:
    if columns is None:
        return list(_COLUMNS)
    if not isinstance(columns, (list, tuple)) or not all(type(name) in (str, int) for name in columns):
        raise ValueError(f"columns {columns!r:.200} are not accepted: give a list of texts or integers")
    return list(columns)


def _is_frame(data: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _kind(value: Any) -> str:
    """What W&B tells apart in a column."""
    value = _as_python(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "none"
    for kind, types in _KINDS.items():
        if isinstance(value, types):
            return kind
    return type(value).__name__


_KINDS: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "number": (int, float),
    "string": (str,),
    "timestamp": (datetime, date),
    "list": (list, tuple),
    "dict": (dict,),
}


def _as_python(value: Any) -> Any:
    """An array, a tensor or one of their scalars as Python's own values."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if hasattr(value, "tolist"):
        return value.tolist()
    return value


def _column(values: Sequence[Any]) -> Any:
    """A column of one kind: as it is where Arrow holds it, else as text."""
    import pyarrow as pa

    cells = [_cell(value) for value in values]
    try:
        return pa.array(cells)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return pa.array([_text(cell) for cell in cells], pa.string())


def _cell(value: Any) -> Any:
    if isinstance(value, WBValue):
        stored = value.to_media()
        if isinstance(stored, StoredMedia):
            return {"bytes": stored.encode(), "path": f"{stored.kind}{stored.suffix}"}
        # A picture with boxes or masks: in a cell it is the picture alone.
        picture = stored["image"]
        return {"bytes": picture.encode(), "path": f"image{picture.suffix}"}
    content = _as_python(value)
    if _is_deeper(content, _MAX_NESTED):
        raise InvalidInput(
            f"a table's cell is not accepted: it is nested deeper than {_MAX_NESTED}, or holds itself"
        )
    return content


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and dicts are nested in more levels; Arrow ends the process where they are endless."""
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, (list, tuple)):
        inner = value
    if levels == 0:
        return bool(inner)
    return any(_is_deeper(each, levels - 1) for each in inner if isinstance(each, (list, tuple, dict)))


def _text(cell: Any) -> str | None:
    if cell is None:
        return None
    if isinstance(cell, str):
        return _as_utf8(cell)
    if isinstance(cell, dict) and isinstance(cell.get("bytes"), bytes):
        return f"{cell['path']}, {len(cell['bytes'])} bytes"
    return json.dumps(jsonable(cell), default=str)


def _as_utf8(text: str) -> str:
    """A text that has a form in UTF-8: half a surrogate pair, as of a cut emoji, is a question mark."""
    return text.encode(errors="replace").decode()


def _different(names: list[str]) -> list[str]:
    """Names of which each is there once; a later equal one gets its number."""
    taken: list[str] = []
    for place, name in enumerate(names):
        taken.append(name if name not in taken else f"{name} ({place})")
    return taken
