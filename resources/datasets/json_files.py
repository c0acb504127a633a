"""JSON files as sources: an object a line, one array of objects, or objects one after another.

Each file is read twice: once to find the types of its columns, and once for its rows with these types.
"""

import codecs
import json
import re
from collections.abc import Iterator

import pyarrow as pa
from pyarrow import json as arrow_json

from resources.datasets import text_files
from resources.datasets.json_types import JsonTypes, objects_of, refuse_rounded, texts_for_times
from resources.datasets.text_files import TextFile, not_in_encoding, open_text
from resources.source_files.columns import Columns
from resources.source_files.listing import SourceFile

_MAX_OBJECT = 64 * 2**20
"""Characters of one object."""
_WAYS = "give one object per line (jsonl), or one array of objects"
_SPACE = re.compile(r"\s*")
# It also matches null in a list with line breaks, so what it finds is looked at again.
_NULL_FOR_AN_OBJECT = re.compile(r"(^|\})\s*null\s*($|\{)", re.MULTILINE)


def json_columns(file: SourceFile, encoding: str | None = None) -> Columns:
    """Find the columns of a JSON file, with types that hold every value exactly.

    A key that an object lacks is null.

    Raises:
        ValueError: it is not in that encoding, holds something else than objects, or has values that no type
            holds.
    """
    types = JsonTypes()
    for block in _read_blocks(file, encoding):
        _refuse_nulls(block)
        rows = _parse(block, None)
        texts = texts_for_times(rows.schema)
        times = None
        if texts is not None:
            times = _parse(block, texts)
        types.add(block, rows, times)
    return Columns(types.types(), types.large(), optional=True)


def json_rows(
    file: SourceFile, wanted: pa.Schema | None = None, encoding: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Read the rows of a JSON file with the given types, or with its own.

    Raises:
        ValueError: it is not in that encoding, holds something else than objects, or has a value that is not
            of the type.
    """
    if wanted is None:
        wanted = json_columns(file, encoding).types
    for block in _read_blocks(file, encoding):
        rows = _parse(block, wanted)
        refuse_rounded(block, rows)
        yield from rows.to_batches()


def _refuse_nulls(block: str) -> None:
    """Refuse null in place of an object, of which Arrow makes a row of nulls."""
    if _NULL_FOR_AN_OBJECT.search(block) and None in objects_of(block):
        raise ValueError(f"it has null where an object should be; {_WAYS}")


def _parse(block: str, types: pa.Schema | None) -> pa.Table:
    content = block.encode()
    options = arrow_json.ReadOptions(use_threads=False, block_size=len(content) + 1)
    parsing = arrow_json.ParseOptions(explicit_schema=types, newlines_in_values=True)
    try:
        return arrow_json.read_json(pa.BufferReader(content), options, parsing)
    except pa.ArrowInvalid as error:
        if "Failed to convert JSON" in str(error):
            raise ValueError(
                f"a value does not become what its column is with the other files: {error}; write it with "
                "one type"
            ) from None
        if "Column(/" in str(error):
            raise ValueError(str(error)) from None
        raise ValueError(f"{error}; {_WAYS}") from None


def _read_blocks(file: SourceFile, encoding: str | None) -> Iterator[str]:
    """Read the text of a file in blocks of whole objects."""
    with open_text(file, encoding) as text:
        pieces = _decode(text)
        begun = ""
        for piece in pieces:
            begun += piece
            if begun.strip():
                break
        begun = begun.lstrip()
        if not begun:
            return
        while "\n" not in begun and len(begun) < _MAX_OBJECT and (piece := next(pieces, "")):
            begun += piece
        if _is_object(begun.partition("\n")[0]):
            yield from _split_lines(begun, pieces)
        else:
            yield from _split_objects(begun, pieces)


def _decode(text: TextFile) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder(text.encoding)()
    try:
        while chunk := text.read(text_files.BLOCK):
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)
    except UnicodeError:
        raise not_in_encoding("it", text.encoding) from None


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _split_lines(begun: str, pieces: Iterator[str]) -> Iterator[str]:
    rest = begun
    while True:
        end = rest.rfind("\n") + 1
        if rest[:end].strip():
            yield rest[:end]
        rest = rest[end:]
        piece = next(pieces, None)
        if piece is None:
            break
        rest += piece
        if len(rest) > _MAX_OBJECT + text_files.BLOCK and "\n" not in rest:
            raise ValueError(f"a line of it has more than {_MAX_OBJECT >> 20} MiB; {_WAYS}")
    if rest.strip():
        yield rest


def _split_objects(begun: str, pieces: Iterator[str]) -> Iterator[str]:
    """Blocks of objects that no line ends, in an array or without one."""
    text = begun
    is_array = text.startswith("[")
    place = int(is_array)
    is_at_end = False
    objects: list[str] = []
    size = 0
    decode = json.JSONDecoder().raw_decode
    while True:
        place = _SPACE.match(text, place).end()  # type: ignore[union-attr]  # which matches nothing, too
        if place == len(text):
            piece = next(pieces, None)
            if piece is None:
                break
            text = piece
            place = 0
            continue
        if is_array and not is_at_end and text[place] in ",]":
            is_at_end = text[place] == "]"
            place += 1
            continue
        if is_at_end or text[place] != "{":
            position = "where an object should begin"
            if is_at_end:
                position = "behind its array"
            raise ValueError(f"it has {text[place]!r} {position}; {_WAYS}")
        try:
            end = decode(text, place)[1]
        except (ValueError, RecursionError) as error:
            text = _read_more(text[place:], pieces, str(getattr(error, "msg", error)))
            place = 0
            continue
        objects.append(text[place:end])
        size += end - place
        place = end
        if size >= text_files.BLOCK:
            yield "\n".join(objects)
            objects = []
            size = 0
    if is_array and not is_at_end:
        raise ValueError(f"its array does not end; {_WAYS}")
    if objects:
        yield "\n".join(objects)


def _read_more(text: str, pieces: Iterator[str], why: str) -> str:
    """Read on until the text is twice as long, because its object may only be cut off."""
    more: list[str] = []
    missing = len(text)
    while missing > 0 and len(text) <= _MAX_OBJECT and (piece := next(pieces, None)) is not None:
        more.append(piece)
        missing -= len(piece)
    if not any(more):
        raise ValueError(
            f"it has an object that cannot be read or has more than {_MAX_OBJECT >> 20} MiB: {why}; {_WAYS}"
        )
    return text + "".join(more)
