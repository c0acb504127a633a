"""Converting between numpy and Arrow by their buffers.

``pyarrow.array`` and ``to_numpy`` import pandas where it is installed, which takes 0.2 s.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def column_of(values: Any, kind: "pa.DataType") -> "pa.Array":
    """A numpy array of shape (n,) as an Arrow array of a type of equal width; they share the memory."""
    import numpy as np
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def dictionary_of(codes: Any, names: Sequence[str]) -> "pa.DictionaryArray":
    """A dictionary array whose ``codes`` (int32, (n,)) are places in ``names``."""
    import numpy as np
    import pyarrow as pa

    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    texts = pa.Array.from_buffers(
        pa.string(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    )
    return pa.DictionaryArray.from_arrays(column_of(np.asarray(codes, np.int32), pa.int32()), texts)


def codes_of(column: "pa.Array | pa.ChunkedArray") -> tuple[Any, list[str]]:
    """The distinct texts of a column, and each row's place in them, as :func:`dictionary_of` takes them."""
    import pyarrow as pa

    whole = column
    if isinstance(column, pa.ChunkedArray):
        whole = column.combine_chunks()
    if not pa.types.is_dictionary(whole.type):
        whole = whole.dictionary_encode()
    return numbers_in(whole.indices), whole.dictionary.to_pylist()


def moments() -> "pa.DataType":
    """The type of wall times."""
    import pyarrow as pa

    return pa.timestamp("ms", tz="UTC")


def numbers_of(column: "pa.ChunkedArray") -> Any:
    """A column of numbers without nulls as a read-only numpy array; times as int64 in their unit."""
    import numpy as np

    parts = [numbers_in(chunk) for chunk in column.chunks]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.empty(0, _kind(column.type)), *parts])


def numbers_in(array: "pa.Array") -> Any:
    """:func:`numbers_of` for one array."""
    import numpy as np

    kind = _kind(array.type)
    data = array.buffers()[1]
    if data is None:
        return np.empty(0, kind)
    return np.frombuffer(data, kind, len(array), array.offset * kind.itemsize)


def _kind(kind: "pa.DataType") -> Any:
    import numpy as np

    return np.dtype({"int32": np.int32, "double": np.float64}.get(str(kind), np.int64))
