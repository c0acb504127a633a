"""What neptune-exporter writes: rows of its schema in Parquet files, and the files of runs beside them."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Store
from tests.sdk.imports.copies import media, points

SCHEMA = pa.schema(
    [
        ("project_id", pa.string()),
        ("run_id", pa.string()),
        ("attribute_path", pa.string()),
        ("attribute_type", pa.string()),
        ("step", pa.decimal128(18, 6)),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("int_value", pa.int64()),
        ("float_value", pa.float64()),
        ("string_value", pa.string()),
        ("bool_value", pa.bool_()),
        ("datetime_value", pa.timestamp("ms", tz="UTC")),
        ("string_set_value", pa.list_(pa.string())),
        ("file_value", pa.struct([("path", pa.string())])),
        (
            "histogram_value",
            pa.struct(
                [("type", pa.string()), ("edges", pa.list_(pa.float64())), ("values", pa.list_(pa.float64()))]
            ),
        ),
    ]
)
PROJECT = "acme/digits"
FOLDER = "acme_digits-0a1b2c3d"
BEGAN = datetime(2025, 3, 1, 12, 0, 0, 5000, UTC)
BEGAN_MS = 1_740_830_400_005
_VALUES = {
    "float_series": "float_value",
    "string_series": "string_value",
    "histogram_series": "histogram_value",
    "file": "file_value",
    "file_series": "file_value",
    "file_set": "file_value",
    "artifact": "file_value",
}
Row = dict[str, Any]


def param(path: str, kind: str, value: Any) -> Row:
    return {"attribute_path": path, "attribute_type": kind, f"{kind}_value": value}


def series(path: str, kind: str, step: Any, value: Any, time: Any = BEGAN) -> Row:
    """A row of a series; a step as text, so that it is exact."""
    row = {
        "attribute_path": path,
        "attribute_type": kind,
        "step": None if step is None else Decimal(step),
        "timestamp": time,
    }
    return row | {_VALUES[kind]: value}


def point(path: str, step: Any, value: float | None, time: Any = BEGAN) -> Row:
    return series(path, "float_series", step, value, time)


def file(path: str, stored: str | None, kind: str = "file", step: Any = None) -> Row:
    return series(path, kind, step, None if stored is None else {"path": stored}, None)


def histogram(edges: list[float], values: list[float], kind: str = "COUNTING") -> Row:
    return {"type": kind, "edges": edges, "values": values}


def write_part(
    path: Path, rows: list[Row], run: str = "RUN-1", project: str = PROJECT, row_group: int = 3
) -> Path:
    """A part as the exporter writes it; its row groups have few rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    full = [{"project_id": project, "run_id": run, **row} for row in rows]
    table = pa.Table.from_pylist(full, schema=SCHEMA)
    pq.write_table(table, path, compression="snappy", row_group_size=row_group)
    return path


def write_export(exports: Path, parts: list[list[Row]], run: str = "RUN-1") -> Path:
    """A run in parts; gives its project's folder."""
    folder = exports / "data" / FOLDER
    for number, rows in enumerate(parts):
        write_part(folder / f"{run}-9f8e_part_{number}.parquet", rows, run)
    return folder


def write_file(exports: Path, name: str, content: bytes) -> None:
    path = exports / "files" / FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


NAME = f"{PROJECT}/RUN-1"
Capture = pytest.CaptureFixture[str]


def steps_and_values(root: str) -> list[tuple[str, int, float]]:
    return [(key, step, value) for _, key, step, value, _ in points(root)]


def artifacts(root: str) -> dict[str, bytes]:
    """The files of all runs by their names."""
    store = Store(root)
    records = [json.loads(path.read_text()) for path in Path(root).glob("runs/*/*/artifacts/*.json")]
    return {record["name"]: bytes(store.get_blob(record["digest"])) for record in records}


def contents(root: str, kind: str) -> list[tuple[str, int, bytes]]:
    """Media of a kind: key, step and content."""
    return [
        (key, step, bytes(Store(root).get_blob(digest)))
        for key, step, medium_kind, digest in media(root)
        if medium_kind == kind
    ]
