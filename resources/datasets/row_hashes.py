"""A 64-bit hash of each row, by its values, which deals rows into splits and finds duplicates.

The function never changes.

Equal values have equal hashes however they are stored: a number counts by its value (5, 5.0 and a decimal
5.00 are equal, in any width), an instant by the nanosecond whatever its unit, a text by its UTF-8 bytes. All
arithmetic is modulo 2**64:

    mix(x)         the finalizer of splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number
                   generators", OOPSLA 2014)
    word(value)    64 bits of one value; see below
    row            mix(sum over columns of mix(word ^ word(column's name)))

The order of the columns has no effect. It does not resist people who look for collisions. Among 10**9 rows
some two that differ have the same hash with a probability of 3 %.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C6E756C6C)
_NAN = np.uint64(0x6E616E6E616E6E61)
_FRACTION = np.uint64(0x667261637469BEEF)
_TEXT = np.uint64(0x7465787474657874)
_LIST = np.uint64(0x6C6973746C697374)
_BLOCK = 1 << 14  # words that are worked on at a time, which fit into the processor's second cache
_MAX_VECTORED = 256  # bytes of a text; longer ones are hashed one by one, which is faster for them
_FAMILIES = {
    "number": ("int", "uint", "half", "float", "double", "decimal", "bool"),
    "moment": ("timestamp", "date", "time", "duration"),
    "text": ("string", "large_string", "binary", "large_binary", "fixed_size_binary"),
}
_LISTS = ("list<item: ", "large_list<item: ", "fixed_size_list<item: ")
_INTEGERS = {32: pa.int32(), 64: pa.int64()}
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def column_words(rows: pa.RecordBatch) -> dict[str, Words]:
    """The word of each value, by column. Shape (rows,) each."""
    return {name: _words(column) for name, column in zip(rows.schema.names, rows.columns, strict=True)}


def hash_rows(words: Mapping[str, Words], columns: Iterable[str]) -> Words:
    """The hash of each row by some of its columns. Shape (rows,)."""
    names = sorted(columns)
    salts = _words(pa.array(names, pa.string()))
    total = np.zeros(len(words[names[0]]), np.uint64)
    for name, salt in zip(names, salts, strict=True):
        total += mix(words[name] ^ salt)
    return mix(total)


def hash_family(kind: str) -> str:
    """The family of a type: equal values of types of one family have equal hashes.

    Args:
        kind: the type as Arrow writes it, such as ``timestamp[us, tz=UTC]``; a type that is in none of the
            families is a family of its own.
    """
    for beginning in _LISTS:
        if kind.startswith(beginning):
            return f"list of {hash_family(kind.removeprefix(beginning))}"
    for family, beginnings in _FAMILIES.items():
        if kind.startswith(beginnings):
            return family
    return kind


def mix(words: Words) -> Words:
    """Apply the finalizer of splitmix64 to each word.

    It is a bijection; each bit of the input changes half of the output's bits.
    """
    mixed = np.empty_like(words)
    for start in range(0, len(words), _BLOCK):
        part = mixed[start : start + _BLOCK]
        np.add(words[start : start + _BLOCK], _INCREMENT, out=part)
        part ^= part >> np.uint64(30)
        part *= _FIRST_FACTOR
        part ^= part >> np.uint64(27)
        part *= _SECOND_FACTOR
        part ^= part >> np.uint64(31)
    return mixed


def _words(values: pa.Array) -> Words:
    kind = values.type
    if pa.types.is_null(kind):
        return np.full(len(values), _NULL)
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    words = _words_of(values, kind)
    if values.null_count:
        words[pc.is_null(values).to_numpy(zero_copy_only=False)] = _NULL
    return words


def _words_of(values: pa.Array, kind: pa.DataType) -> Words:
    """The words of the values that are not null; the words of nulls are arbitrary."""
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(values)
    if pa.types.is_struct(kind):
        fields = {kind.field(number).name: _words(values.field(number)) for number in range(kind.num_fields)}
        if not fields:
            return np.zeros(len(values), np.uint64)
        return hash_rows(fields, fields)
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([values.keys, values.items], ["key", "value"])
        return _segments(_words(entries), np.asarray(values.offsets).astype(np.int64))
    if any(
        is_text(kind) for is_text in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    ):
        return _texts(values.cast(pa.large_string()).cast(pa.large_binary()))
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return _texts(values.cast(pa.large_binary()))
    if pa.types.is_temporal(kind):
        return _moments(values, kind)
    return _numbers(values, kind)


def _numbers(values: pa.Array, kind: pa.DataType) -> Words:
    """The word of a whole number is its 64 bits (two's complement); of any other number its float64."""
    if pa.types.is_boolean(kind):
        values = values.cast(pa.uint8())
    elif pa.types.is_decimal(kind):
        values = values.cast(pa.float64())
    numbers = _number_array(values)
    if numbers.dtype.kind in "iu":
        widest = {"i": np.int64, "u": np.uint64}[numbers.dtype.kind]
        return np.ascontiguousarray(numbers.astype(widest)).view(np.uint64)
    words = np.empty(len(numbers), np.uint64)
    for start in range(0, len(numbers), _BLOCK):
        part = numbers[start : start + _BLOCK].astype(np.float64)
        word = words[start : start + _BLOCK]
        np.bitwise_xor(part.view(np.uint64), _FRACTION, out=word)
        rounded = np.rint(part)
        if (is_whole := rounded == part).any():
            is_whole &= np.abs(part) < 2.0**63
            word[is_whole] = rounded[is_whole].astype(np.int64).view(np.uint64)
        if (is_nan := rounded != rounded).any():
            word[is_nan] = _NAN
    return words


def _moments(values: pa.Array, kind: pa.DataType) -> Words:
    """Nanoseconds since 1970 or since midnight, or of a duration."""
    if kind == pa.date32():
        factor = 86_400 * 10**9
    elif pa.types.is_date(kind):
        factor = 10**6
    else:
        factor = _NANOSECONDS[kind.unit]
    values = values.cast(_INTEGERS[kind.bit_width])
    return _number_array(values).astype(np.int64).view(np.uint64) * np.uint64(factor)


def _texts(values: pa.Array) -> Words:
    """The words of texts and binary values.

    Up to 256 bytes, each 8 bytes (little-endian, the last padded with zeros) are mixed into the word so far.
    A longer value counts by its SHA-256.
    """
    _, offset_bytes, data = values.buffers()
    if len(values):
        offsets = np.frombuffer(offset_bytes, np.int64)[values.offset : values.offset + len(values) + 1]
    else:
        offsets = np.zeros(1, np.int64)
    starts = offsets[:-1]
    lengths = np.diff(offsets)
    words = mix(lengths.view(np.uint64) ^ _TEXT)
    if data is None or not len(values):
        return words
    pending = np.flatnonzero((lengths > 0) & (lengths <= _MAX_VECTORED))
    if len(pending):
        first = int(starts[pending[0]])
        end = int(starts[pending[-1]] + lengths[pending[-1]])
        padded = np.zeros(end - first + 8, np.uint8)
        padded[:-8] = np.frombuffer(data, np.uint8)[first:end]
        # A view of the 8 bytes that begin at each byte.
        eights: NDArray[Any] = np.ndarray((end - first + 1,), "<u8", padded.data, strides=(1,))
    place = 0
    while len(pending):
        part = eights[starts[pending] - first + place]
        remaining = lengths[pending] - place
        short = remaining < 8
        part[short] &= (np.uint64(1) << (remaining[short].astype(np.uint64) * np.uint64(8))) - np.uint64(1)
        words[pending] = mix(words[pending] ^ part)
        place += 8
        pending = pending[remaining > 8]
    view = memoryview(data)
    for row in np.flatnonzero(lengths > _MAX_VECTORED):
        content = view[starts[row] : starts[row] + lengths[row]]
        words[row] ^= np.uint64(int.from_bytes(hashlib.sha256(content).digest()[:8], "little"))
    return words


def _lists(values: pa.Array) -> Words:
    if not pa.types.is_fixed_size_list(values.type):
        offsets = np.asarray(values.offsets).astype(np.int64)
        flat = values.values.slice(offsets[0], offsets[-1] - offsets[0])
        return _segments(_words(flat), offsets - offsets[0])
    size = values.type.list_size
    # flatten() would leave null lists out.
    inner = _words(values.values.slice(values.offset * size, len(values) * size))
    return _segments(inner, np.arange(len(values) + 1, dtype=np.int64) * size)


def _segments(inner: Words, offsets: NDArray[np.int64]) -> Words:
    """The word of each list: sum over its values of mix(word + mix(place)), mixed with its length."""
    lengths = np.diff(offsets)
    sums = np.zeros(len(lengths), np.uint64)
    if len(inner):
        places = mix(np.arange(int(lengths.max()), dtype=np.uint64))
        step = max(1, _BLOCK // max(1, int(lengths.max())))
        for first in range(0, len(lengths), step):
            begin = int(offsets[first])
            end = int(offsets[min(first + step, len(lengths))])
            if begin == end:
                continue
            part = lengths[first : first + step]
            if (part == part[0]).all():
                sums[first : first + step] = _sum_mixed(
                    inner[begin:end].reshape(len(part), part[0]) + places[: part[0]]
                )
            else:
                nth = np.arange(end - begin) - np.repeat(offsets[first : first + len(part)] - begin, part)
                mixed = mix(inner[begin:end] + places[nth])
                filled = np.flatnonzero(part)
                sums[first + filled] = np.add.reduceat(
                    mixed, (offsets[first : first + len(part)] - begin)[filled]
                )
    return mix(sums ^ mix(lengths.view(np.uint64) ^ _LIST))


def _sum_mixed(table: Words) -> Words:
    """The sum of each row's mixed words."""
    # einsum is twice as fast as sum(axis=1).
    sums: Words = np.einsum("ij->i", mix(table.reshape(-1)).reshape(table.shape))
    return sums


def _number_array(values: pa.Array) -> NDArray[Any]:
    """The numbers of an array, without the bitmap of its nulls."""
    kind = values.type
    width = kind.bit_width // 8
    data = values.buffers()[1]
    if data is None:
        return np.zeros(len(values), kind.to_pandas_dtype())
    numbers: NDArray[Any] = np.frombuffer(data, kind.to_pandas_dtype(), len(values), values.offset * width)
    return numbers
