"""``halving export``: runs' points as CSV, JSON or Parquet."""

import argparse
import contextlib
import os
import secrets
import sys
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING

from halving.cli.output import names_of, print_json
from halving.errors import InvalidInput, NotFound
from halving.query.curve_stats import keys_of, read_curve
from halving.query.json_values import jsonable
from halving.query.runs import find_run, in_threads
from halving.store.store import Store
from halving.text import count_of

if TYPE_CHECKING:
    import pyarrow as pa

_FORMATS = {".csv": "csv", ".json": "json", ".parquet": "parquet"}
_COLUMNS = ("project", "run", "key", "step", "wall_time", "value", "attempt")


def run_export(arguments: argparse.Namespace) -> int:
    """Write the stitched points of runs, one row for each run, key and step.

    The columns are ``project, run, key, step, wall_time, value, attempt``. In CSV, NaN and infinities are
    ``nan``, ``inf`` and ``-inf``. ``--format json`` is ``{"columns": [...], "rows": [[...]]}``, and so is
    ``--json`` without ``-o``; with ``-o`` it prints ``{"file", "format", "points"}``. The number of points is
    reported on the standard error.
    """
    store = Store(arguments.root)
    target = None
    if arguments.output not in (None, "-"):
        target = Path(arguments.output)
    form = _format(arguments, target)
    runs = list(dict.fromkeys(find_run(store, name) for name in arguments.run_names))
    tables = _tables(store, runs, names_of(arguments.keys))
    if target is None:
        _write(form, tables, sys.stdout.buffer)
        return 0
    # The file is written beside its target and renamed, so that a killed export leaves no half file.
    temporary = target.parent / f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with temporary.open("wb") as file:
            points = _write(form, tables, file)
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    if arguments.json:
        print_json({"file": str(target), "format": form, "points": points})
    else:
        print(f"{points} points of {count_of(len(runs), 'run')} are in {target}", file=sys.stderr)
    return 0


def _format(arguments: argparse.Namespace, target: Path | None) -> str:
    if target is not None:
        return arguments.format or _FORMATS.get(target.suffix, "csv")
    form: str = arguments.format or ("json" if arguments.json else "csv")
    if arguments.json and form != "json":
        raise InvalidInput(
            f"--json with --format {form!r} is not accepted without -o FILE: the standard output would not "
            "be JSON"
        )
    if form == "parquet" and sys.stdout.isatty():
        raise InvalidInput("--format 'parquet' is not accepted on a terminal: give -o FILE")
    return form


def _tables(store: Store, runs: list[tuple[str, str]], keys: list[str] | None) -> "Iterator[pa.Table]":
    """Tables of points, one for each run and key, read one at a time: memory holds one curve.

    Raises:
        NotFound: no run has one of the keys; or retention has dropped points of a key that was named.
    """
    keys_by_run = in_threads(lambda pair: keys_of(store, *pair), runs)
    existing = sorted(set(chain.from_iterable(keys_by_run)))
    missing = sorted(set(keys or []).difference(existing))
    if missing:
        listed = ", ".join([*existing[:10], *["…"] * (len(existing) > 10)]) or "none at all"
        raise NotFound(f"no points of {', '.join(missing)} in these runs; there are {listed}")
    for (project, run), names in zip(runs, keys_by_run, strict=True):
        for key in names:
            if keys is not None and key not in keys:
                continue
            try:
                yield _table(store, project, run, key)
            except NotFound as error:
                if keys is not None:
                    raise
                print(f"halving export: left out: {error}", file=sys.stderr)


def _table(store: Store, project: str, run: str, key: str) -> "pa.Table":
    import pyarrow as pa

    points = read_curve(store, project, run, key)
    texts = [pa.repeat(value, len(points.step)) for value in (project, run, key)]
    return pa.table([*texts, points.step, points.time, points.value, points.attempt], schema=_schema())


def _schema() -> "pa.Schema":
    import pyarrow as pa

    kinds = [*[pa.string()] * 3, pa.int64(), pa.timestamp("ms", tz="UTC"), pa.float64(), pa.int32()]
    return pa.schema(list(zip(_COLUMNS, kinds, strict=True)))


def _write(form: str, tables: "Iterator[pa.Table]", file: IO[bytes]) -> int:
    """Write the tables one after another and return the number of rows.

    The first table is read before anything is written, so that a refusal writes nothing.
    """
    write = {"csv": _write_csv, "json": _write_json, "parquet": _write_parquet}[form]
    return write(chain(list(islice(tables, 1)), tables), file)


def _write_csv(tables: "Iterator[pa.Table]", file: IO[bytes]) -> int:
    import pyarrow.compute as pc
    from pyarrow import csv

    count = 0
    options = csv.WriteOptions(include_header=False, quoting_style="needed")
    file.write(",".join(_COLUMNS).encode() + b"\n")
    for table in tables:
        place = table.schema.get_field_index("wall_time")
        text = pc.strftime(table["wall_time"], format="%Y-%m-%dT%H:%M:%SZ")
        csv.write_csv(table.set_column(place, "wall_time", text), file, options)
        count += len(table)
    return count


def _write_json(tables: "Iterator[pa.Table]", file: IO[bytes]) -> int:
    import json

    count = 0
    separator = b"\n"
    file.write(b'{"columns": ' + json.dumps(list(_COLUMNS)).encode() + b', "rows": [')
    for table in tables:
        for batch in table.to_batches(10_000):
            rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
            text = ",\n".join(json.dumps(jsonable(list(row)), allow_nan=False) for row in rows)
            file.write(separator + text.encode())
            separator = b",\n"
            count += len(batch)
    file.write(b"\n]}\n")
    return count


def _write_parquet(tables: "Iterator[pa.Table]", file: IO[bytes]) -> int:
    import pyarrow.parquet as pq

    count = 0
    with pq.ParquetWriter(file, _schema(), compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
            count += len(table)
    return count
