"""Rows of logged tables as JSON; a page asks for some of them, however large the table is."""

import base64
import json
from typing import Any

from halving import Store
from halving.errors import InvalidInput
from halving.query.json_values import jsonable
from halving.store.store import blob_name

MAX_ROWS = 1_000
MAX_COLUMNS = 100
_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff"
_MAX_LETTERS = 500  # of a value that is not a number
_MAX_BYTES = 256 << 20  # of the row groups that hold the rows, unpacked
_MAX_PICTURE = 256 << 10  # bytes of a picture in a cell
_MAX_PICTURES = 4 << 20  # of all pictures in an answer
_EXACT = 2**53  # what every reader of JSON has of integers


def table_rows(store: Store, digest: str, offset: int, limit: int) -> dict[str, Any]:
    """Some rows of a Parquet file.

    Returns:
        ``columns`` (name and type, the first hundred), ``rows`` (a list for each, with a value for each
        column), ``total`` rows and ``total_columns``. Numbers are numbers; what JSON has no form for is text,
        cut where it is long. A PNG or JPEG in a cell, ``{"bytes", "path"}``, is ``{"picture": ADDRESS}`` with
        an address that has it inside (``data:``), as long as it is small.

    Raises:
        InvalidInput: it is no Parquet file, or its rows are too large to be read here.
        NotFound: the blob is no longer in the store.
        StoreError: it cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with store.open_file(blob_name(digest)) as source:
        try:
            file = pq.ParquetFile(source)
            schema = file.schema_arrow
            metadata = file.metadata
            names = schema.names[:MAX_COLUMNS]
            groups, skipped = _groups(metadata, offset, limit)
            rows = _rows(file, groups, names, skipped, limit)
        except pa.ArrowException as error:
            raise InvalidInput(f"{digest} cannot be read as a table: {error}") from None
        columns = [{"name": name, "type": str(schema.field(place).type)} for place, name in enumerate(names)]
        return {
            "columns": columns,
            "rows": rows,
            "total": metadata.num_rows,
            "total_columns": len(schema.names),
        }


def _groups(metadata: Any, offset: int, limit: int) -> tuple[list[int], int]:
    """The row groups that hold the rows, and how many rows to skip in the first of them."""
    groups: list[int] = []
    before = skipped = size = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if before < offset + limit and before + group.num_rows > offset:
            if not groups:
                skipped = offset - before
            groups.append(number)
            size += group.total_byte_size
        before += group.num_rows
    if size > _MAX_BYTES:
        raise InvalidInput(
            f"the table's rows from {offset} on take {size >> 20} MiB together, and at most "
            f"{_MAX_BYTES >> 20} are shown: download it"
        )
    return groups, skipped


def _rows(file: Any, groups: list[int], names: list[str], skipped: int, limit: int) -> list[list[Any]]:
    rows: list[list[Any]] = []
    left = _MAX_PICTURES

    def cell_of(value: Any) -> Any:
        nonlocal left
        if _is_picture(value) and len(value["bytes"]) <= left:
            left -= len(value["bytes"])
            return {"picture": _data_address(value["bytes"])}
        return _value(value)

    if not groups or not names:
        return rows
    for batch in file.iter_batches(batch_size=MAX_ROWS, row_groups=groups, columns=names):
        wanted = batch.slice(min(skipped, len(batch)), limit - len(rows))
        skipped = max(0, skipped - len(batch))
        rows += [
            list(row)
            for row in zip(
                *([cell_of(each) for each in column.to_pylist()] for column in wanted.columns), strict=True
            )
        ]
        if len(rows) >= limit:
            break
    return rows


def _is_picture(value: Any) -> bool:
    """Whether a cell holds a small picture, as ``halving.wandb`` and Hugging Face's datasets write it."""
    if not isinstance(value, dict) or not isinstance(value.get("bytes"), bytes):
        return False
    content = value["bytes"]
    return len(content) <= _MAX_PICTURE and content.startswith((_PNG, _JPEG))


def _data_address(content: bytes) -> str:
    kind = "png" if content.startswith(_PNG) else "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _value(value: Any) -> Any:
    if value is None or isinstance(value, (bool, float)) or (isinstance(value, int) and abs(value) <= _EXACT):
        return jsonable(value)
    if isinstance(value, bytes):
        return f"{len(value):,} bytes"
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):  # a picture or sound in a cell
        return f"{value.get('path') or 'a file'}, {len(value['bytes']):,} bytes"
    text = str(value)
    if isinstance(value, (list, dict)):
        text = json.dumps(jsonable(value), default=str)
    if len(text) <= _MAX_LETTERS:
        return text
    return f"{text[:_MAX_LETTERS]}…"
