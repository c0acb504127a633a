"""What a run logs besides numbers: images, tables, histograms and text, each stored as one file.

Sound, videos and HTML are in modules of their own: :mod:`halving.ingest.audio`, ``video`` and ``html``.

An object holds its encoded file from the start, so a later change of the array, list or frame that it was
made of does not change what is logged. Equal content gives equal bytes, which the store keeps once.
"""

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from halving.errors import InvalidInput
from halving.ingest import images

if TYPE_CHECKING:
    import numpy as np

_MAX_BINS = 10_000


class Media:
    """A file to be logged in a run's history: ``run.log({"sample": halving.Image(array)}, step=n)``.

    Attributes:
        kind: ``image``, ``table``, ``histogram``, ``text``, ``audio``, ``video`` or ``html``.
        media_type: of the encoded file, as in HTTP.
        suffix: of a file that holds it, with its dot.
        caption: a line to show beside it, or None.
    """

    kind: str
    media_type: str
    suffix: str

    def __init__(self, encoded: bytes, facts: dict[str, Any], caption: str | None) -> None:
        if caption is not None and not isinstance(caption, str):
            raise InvalidInput(f"{self.kind} caption {caption!r:.80} is not accepted: give a string or None")
        self.caption = caption
        self._encoded = encoded
        self._facts = facts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in self._facts.items())})"

    def encode(self) -> bytes:
        """The file's content."""
        return self._encoded

    def describe(self) -> dict[str, Any]:
        """Facts that can be shown without opening the file, such as an image's width."""
        return dict(self._facts)


class Image(Media):
    """A picture, stored as PNG, or as it is when it is a PNG or JPEG file already.

    Args:
        data: a numpy array of shape HxW, HxWx1 (grey), HxWx3 (RGB) or HxWx4 (RGBA); a torch tensor of shape
            HxW or CxHxW (one on a GPU is waited for); uint8, or floats or bools within 0..1. Or a Pillow
            image, or the path or bytes of a PNG or JPEG file.
        caption: a line to show beside it.

    Raises:
        InvalidInput: ``data`` is none of these.
    """

    kind = "image"

    def __init__(self, data: Any, *, caption: str | None = None) -> None:
        encoded = images.encode(data)
        self.media_type = "image/png"
        self.suffix = ".png"
        if images.is_jpeg(encoded):
            self.media_type = "image/jpeg"
            self.suffix = ".jpg"
        width, height = images.size(encoded)
        super().__init__(encoded, {"width": width, "height": height}, caption)


class Table(Media):
    """Rows and columns, stored as Parquet.

    Args:
        data: a ``pyarrow.Table``, a pandas DataFrame (an index that is more than row numbers becomes
            columns), or anything else with Arrow's ``__arrow_c_stream__`` (polars, DuckDB).
        columns, rows: instead of ``data``: the names, and for each row a sequence of as many values. The
            values of a column are of one kind that Arrow knows: numbers, strings, bools, times, bytes, lists;
            None is a missing value.
        caption: a line to show beside it.

    Raises:
        InvalidInput: neither or both are given, a row has a different length, or a column mixes kinds (the
            message names it).
    """

    kind = "table"
    media_type = "application/vnd.apache.parquet"
    suffix = ".parquet"

    def __init__(
        self,
        data: Any = None,
        *,
        columns: Sequence[str] | None = None,
        rows: Iterable[Sequence[Any]] | None = None,
        caption: str | None = None,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if data is not None and columns is None and rows is None:
            table = _arrow_table(data)
        elif data is None and columns is not None and rows is not None:
            table = _table_of_rows(columns, rows)
        else:
            raise InvalidInput(
                "table data, columns and rows are not accepted like this: give data alone, or columns and "
                "rows"
            )
        sink = pa.BufferOutputStream()
        try:
            # Metadata (a frame's index, the version of pandas) is not content.
            pq.write_table(table.replace_schema_metadata(None), sink, compression="zstd")
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise InvalidInput(f"table data is not accepted: Parquet does not hold it ({error})") from None
        super().__init__(
            bytes(sink.getvalue()), {"rows": table.num_rows, "columns": table.num_columns}, caption
        )


class Histogram(Media):
    """The distribution of values, stored as JSON.

    The file has ``counts`` (n) and ``edges`` (n + 1), and counts ``nan``, ``inf`` and ``-inf`` apart.

    Args:
        values: numbers: a list, numpy array or torch tensor of any shape (one on a GPU is waited for). Values
            without any finite number, or none at all, are accepted too: every count is 0 then.
        bins: how many bins of equal width from the smallest to the largest finite value.
        counts, edges: instead of ``values``: finished counts (none negative) and edges (growing).
        caption: a line to show beside it.

    Raises:
        InvalidInput: neither or both are given, or they are not numbers of that kind.
    """

    kind = "histogram"
    media_type = "application/json"
    suffix = ".json"

    def __init__(
        self,
        values: Any = None,
        *,
        bins: int = 64,
        counts: Any = None,
        edges: Any = None,
        caption: str | None = None,
    ) -> None:
        if isinstance(bins, bool) or not isinstance(bins, int) or not 1 <= bins <= _MAX_BINS:
            raise InvalidInput(
                f"histogram bins {bins!r:.80} is not accepted: give an integer from 1 to {_MAX_BINS}"
            )
        apart = {"nan": 0, "inf": 0, "-inf": 0}
        if values is not None and counts is None and edges is None:
            counted, bounds, apart = _count(_numbers("values", values), bins)
        elif values is None and counts is not None and edges is not None:
            counted, bounds = _finished_counts(counts, edges)
        else:
            raise InvalidInput(
                "histogram values, counts and edges are not accepted like this: give values alone, or "
                "counts and edges"
            )
        encoded = json.dumps({"counts": counted, "edges": bounds, **apart}).encode()
        facts = {"bins": len(counted), "count": sum(counted), "low": bounds[0], "high": bounds[-1], **apart}
        super().__init__(encoded, facts, caption)


def edges_around(value: float) -> list[float]:
    """The edges of the one bin of equal values, where a tool has two equal edges."""
    half = max(0.5, abs(value) * 1e-6)
    return [value - half, value + half]


class Text(Media):
    """A piece of text, stored as UTF-8.

    Args:
        text: any string.
        markdown: the text is Markdown and may be shown as such.
        caption: a line to show beside it.

    Raises:
        InvalidInput: not a string, or one with half a surrogate pair.
    """

    kind = "text"

    def __init__(self, text: str, *, markdown: bool = False, caption: str | None = None) -> None:
        if not isinstance(text, str):
            raise InvalidInput(
                f"text {text!r:.80} of type {type(text).__qualname__} is not accepted: give a string"
            )
        try:
            encoded = text.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"text {text!r:.80} is not accepted: it has no UTF-8 form (half a surrogate pair)"
            ) from None
        self.media_type = "text/plain"
        self.suffix = ".txt"
        if markdown:
            self.media_type = "text/markdown"
            self.suffix = ".md"
        super().__init__(encoded, {"length": len(text)}, caption)


def _arrow_table(data: Any) -> Any:
    import pyarrow as pa

    if isinstance(data, pa.Table):
        return data
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(data, pandas.DataFrame):
            return pa.Table.from_pandas(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise InvalidInput(
            f"table data of type {type(data).__qualname__} is not accepted: Arrow does not hold it ({error})"
        ) from None
    raise InvalidInput(
        f"table data {data!r:.80} of type {type(data).__qualname__} is not accepted: "
        "give a pyarrow.Table, a DataFrame, or columns=… and rows=…"
    )


def _table_of_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Any:
    import pyarrow as pa

    if (
        isinstance(columns, str)
        or not all(isinstance(name, str) for name in columns)
        or len(set(columns)) != len(columns)
    ):
        raise InvalidInput(f"table columns {columns!r:.200} are not accepted: give different names")
    kept = []
    for number, row in enumerate(rows):
        values = None
        if isinstance(row, Iterable) and not isinstance(row, (str, bytes)):
            values = [_as_number(value) for value in row]
        if values is None or len(values) != len(columns):
            raise InvalidInput(
                f"table row {number} {row!r:.80} is not accepted: give {len(columns)} values, one for each "
                "column"
            )
        kept.append(values)
    arrays = []
    for place, name in enumerate(columns):
        try:
            arrays.append(pa.array([row[place] for row in kept]))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(
                f"table column {name!r} is not accepted: give values of one kind ({error})"
            ) from None
    return pa.Table.from_arrays(arrays, names=list(columns))


def _as_number(value: Any) -> Any:
    """A 0-d array or tensor as a number."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _numbers(field: str, values: Any) -> "np.ndarray[Any, Any]":
    """All of ``values`` as a float64 array of one dimension."""
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(values, torch.Tensor) and not values.is_complex():
        return np.asarray(values.detach().cpu().double().numpy()).ravel()
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError):  # a ragged list; numbers and tensors on a device mixed
        array = np.empty(0, object)
    if array.dtype.kind not in "biuf":
        raise InvalidInput(
            f"histogram {field} {values!r:.80} of type {type(values).__qualname__} are not accepted: give "
            "real numbers"
        )
    return array.astype(np.float64).ravel()


def _count(values: "np.ndarray[Any, Any]", bins: int) -> tuple[list[int], list[float], dict[str, int]]:
    import numpy as np

    finite = values[np.isfinite(values)]
    apart = {
        "nan": int(np.isnan(values).sum()),
        "inf": int((values == np.inf).sum()),
        "-inf": int((values == -np.inf).sum()),
    }
    if not finite.size:
        return [0] * bins, [float(edge) for edge in np.linspace(0, 1, bins + 1)], apart
    largest = float(np.abs(finite).max())
    # Without scaling, the distance from the lowest to the highest value could be infinite.
    scale = 4.0 if largest > 1e300 else 1.0
    finite = finite / scale
    low = float(finite.min())
    high = float(finite.max())
    # At least as wide as numpy needs to tell the edges apart; equal values get one bin in the middle.
    narrowest = max(4 * bins * math.ulp(max(abs(low), abs(high))), 1e-300)
    if high - low < narrowest:
        around = narrowest
        if low == high:
            around = max(narrowest, 0.5)
        low = low - around
        high = high + around
    counts, edges = np.histogram(finite, bins, (low, high))
    # Widened and scaled back, an edge could exceed the largest float.
    bounds = np.clip(edges, -sys.float_info.max / scale, sys.float_info.max / scale) * scale
    return [int(count) for count in counts], [float(edge) for edge in bounds], apart


def _finished_counts(counts: Any, edges: Any) -> tuple[list[int], list[float]]:
    import numpy as np

    counted = _numbers("counts", counts)
    bounds = _numbers("edges", edges)
    if not len(counted) or not np.isfinite(counted).all() or (counted < 0).any():
        raise InvalidInput(
            f"histogram counts {counts!r:.80} are not accepted: give finite numbers, none negative"
        )
    if len(bounds) != len(counted) + 1 or not np.isfinite(bounds).all() or not (np.diff(bounds) > 0).all():
        raise InvalidInput(
            f"histogram edges {edges!r:.80} are not accepted: give {len(counted) + 1} finite, growing numbers"
        )
    return [int(count) if count.is_integer() else count for count in counted.tolist()], bounds.tolist()
