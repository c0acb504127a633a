"""A tiny writer of ``.wandb`` files, and what a store has of an imported run."""

import json
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset

from halving import Store
from halving.imports.wandb_log import BLOCK, CHUNK, FIRST, HEADER, LAST, MAGIC, MIDDLE, VERSION, WHOLE
from halving.imports.wandb_messages import record_class
from halving.metrics.segments import live_folder

STARTED = 1_700_000_000
# Kinds of chunks, by whether the record began in an earlier chunk, and whether it goes on after this one.
KINDS = {(False, True): FIRST, (True, True): MIDDLE, (True, False): LAST, (False, False): WHOLE}


def chunk(kind: int, data: bytes) -> bytes:
    return CHUNK.pack(zlib.crc32(bytes([kind]) + data), len(data), kind) + data


def log_of(records: list[bytes]) -> bytes:
    """A file's bytes."""
    return _log_and_ends(records)[0]


def ends_of(records: list[bytes]) -> list[int]:
    """Where each record's last chunk ends in :func:`log_of`."""
    return _log_and_ends(records)[1]


def _log_and_ends(records: list[bytes]) -> tuple[bytes, list[int]]:
    out = bytearray(HEADER.pack(*MAGIC, VERSION))
    ends = []
    for data in records:
        begun = False
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < CHUNK.size:
                out += bytes(left)
                left = BLOCK
            part = data[: left - CHUNK.size]
            data = data[left - CHUNK.size :]
            out += chunk(KINDS[begun, bool(data)], part)
            begun = True
            if not data:
                break
        ends.append(len(out))
    return bytes(out), ends


def run_record(
    run: str, *, project: str = "digits", started: int = STARTED, config: dict[str, Any] | None = None
) -> bytes:
    record = record_class()()
    record.run.run_id = run
    record.run.project = project
    record.run.start_time.seconds = started
    for name, value in (config or {}).items():
        record.run.config.update.add(key=name, value_json=json.dumps(value))
    return bytes(record.SerializeToString())


def history_record(step: int, values: dict[str, Any]) -> bytes:
    """A step whose values are leaves, or as W&B has written them before: a dict as one JSON."""
    record = record_class()()
    for name, value in {**values, "_step": step, "_timestamp": STARTED + step + 0.5}.items():
        record.history.item.add(key=name, value_json=json.dumps(value))
    record.history.step.num = step
    return bytes(record.SerializeToString())


def summary_record(values: dict[str, Any], remove: tuple[str, ...] = (), *, nested: bool = False) -> bytes:
    """The record of ``run.summary[…] = …`` and ``del run.summary[…]`` in a training.

    ``nested`` is what W&B says with each step instead.
    """
    record = record_class()()
    record.summary.SetInParent()
    for name, value in values.items():
        names: dict[str, Any] = {"nested_key": name.split("/")} if nested else {"key": name}
        record.summary.update.add(
            **names, value_json=value if isinstance(value, bytes) else json.dumps(value)
        )
    for name in remove:
        if "/" in name:
            record.summary.remove.add(nested_key=name.split("/"))
        else:
            record.summary.remove.add(key=name)
    return bytes(record.SerializeToString())


def exit_record(code: int) -> bytes:
    record = record_class()()
    record.exit.exit_code = code
    return bytes(record.SerializeToString())


def write_run(folder: Path, run: str, records: list[bytes]) -> Path:
    path = folder / f"offline-run-20231114_221320-{run}" / f"run-{run}.wandb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log_of(records))
    return path


def points_of(store: Store, project: str, run: str) -> list[dict[str, Any]]:
    """All points of a run's segments, sorted by name, step and value.

    NaN is a string, which equals itself.
    """
    folder = Path(store.root) / live_folder(project, run)
    if not folder.exists():
        return []
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("*.parquet")):
        table = pa.dataset.dataset(path).to_table()
        rows += table.select(["attempt", "key", "step", "wall_time", "value"]).to_pylist()
    for row in rows:
        row["key"] = str(row["key"])
        row["value"] = str(row["value"])
    return sorted(rows, key=lambda row: (row["key"], row["step"], row["value"]))


def logged_of(store: Store, project: str, run: str) -> list[tuple[str, int, str]]:
    """The points that the training logged, without those of the machine: name, step, value."""
    return [
        (row["key"], row["step"], row["value"])
        for row in points_of(store, project, run)
        if not row["key"].startswith("system/")
    ]


def documents(store: Store, project: str, run: str, pattern: str) -> list[dict[str, Any]]:
    """A run's records by the pattern of their names."""
    folder = Path(store.root) / "runs" / f"project={project}" / run
    return [json.loads(path.read_text()) for path in sorted(folder.glob(pattern))]
