"""Reads the Parquet files that neptune-exporter has written, in which each value is a row.

A run is in parts, ``PROJECT/RUN_part_N.parquet``. Earlier versions wrote ``part_N.parquet``, with several
runs in a file. A part that is being written ends in ``.tmp``; the parts of a run are renamed when all are
written, the first one last.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from halving.errors import InvalidInput
from halving.imports.foreign_run import SourceUnreadable
from halving.imports.reading import files_below, reading

STEP_UNIT = 10**6  # steps are decimals with six digits behind the point
_COLUMNS = (
    *("project_id", "run_id", "attribute_path", "attribute_type", "step", "timestamp"),
    *(
        "int_value",
        "float_value",
        "string_value",
        "bool_value",
        "datetime_value",
        "string_set_value",
        "file_value",
        "histogram_value",
    ),
)
_PART = re.compile(r"(?:(?P<run>.+)_)?part_(?P<number>\d+)\.parquet(?P<unfinished>\.tmp)?")
_BATCH = 65_536
_FILES = "files"  # the exporter's folder of files, beside its data


class RunKey(NamedTuple):
    """A run, by Neptune's names of its project and itself."""

    project: str
    run: str


class Part(NamedTuple):
    """A file of an export with ``rows`` rows.

    ``mark`` identifies its content, wherever the file is moved.
    """

    path: Path
    mark: str
    rows: int


class Batch(NamedTuple):
    """Rows of one run.

    Attributes:
        part, group: the place of the file in its export, and of the row group in the file.
        numbers: the rows' numbers in the file.
        rows: a record batch with the exporter's columns. Steps are whole millionths, and times are ms since
            1970.
    """

    part: int
    group: int
    numbers: list[int]
    rows: Any


class Export(NamedTuple):
    """The files of a run, or of several runs that share files, under the names that people see."""

    name: str
    parts: dict[int, Path]
    unfinished: list[Path]

    def paths(self) -> list[Path]:
        """The parts in their order.

        Raises:
            SourceUnreadable: not all of them are there.
        """
        missing = sorted(set(range(max(self.parts, default=0) + 1)) - set(self.parts))
        if self.unfinished or missing:
            if self.unfinished:
                problem = f"{self.unfinished[0]} is not written to its end"
            else:
                problem = f"part {missing[0]} of {self.name} is not there"
            raise SourceUnreadable(f"{problem}: run neptune-exporter again, which goes on where it stopped")
        return [self.parts[number] for number in sorted(self.parts)]


def find_exports(source: str, apart: Path | None, failed: Callable[[OSError], object]) -> list[Export]:
    """Find the exports below a folder, or the one that a file belongs to.

    Args:
        apart: the folder of files. All files in it are Neptune's artifacts, whatever they are called.
        failed: gets the error of a folder that cannot be listed.

    Raises:
        InvalidInput: there is none, though all folders can be listed.
    """
    top = Path(source).expanduser().resolve()
    unlisted: list[OSError] = []
    below = list(top.parent.iterdir()) if top.is_file() else files_below(top, unlisted.append)
    exports: dict[tuple[Path, str | None], Export] = {}
    for path in sorted(below):
        match = _PART.fullmatch(path.name)
        is_file_of_a_run = top.is_dir() and (
            _FILES in path.relative_to(top).parts[:-1] or (apart and path.is_relative_to(apart))
        )
        if match is None or is_file_of_a_run:
            continue
        name = "/".join(part for part in (path.parent.name, match["run"]) if part)
        export = exports.setdefault((path.parent, match["run"]), Export(name, {}, []))
        if match["unfinished"]:
            export.unfinished.append(path)
        else:
            export.parts[int(match["number"])] = path
    for error in unlisted:
        failed(error)
    wanted = [
        export
        for export in exports.values()
        if top.is_dir() or top in (*export.parts.values(), *export.unfinished)
    ]
    if not wanted and not unlisted:
        accepted = (
            "give the folder that neptune-exporter has written (exports, with "
            "data/PROJECT/RUN_part_0.parquet in it)"
        )
        raise InvalidInput(f"source {source!r} is not accepted: {accepted}")
    return wanted


def open_part(path: Path) -> Part:
    """Read the facts of a part.

    Raises:
        SourceUnreadable: it cannot be read, or has other columns than the exporter's.
    """
    import pyarrow.parquet as pq

    with reading(path):
        with path.open("rb") as file:
            mark = hashlib.file_digest(file, "sha256").hexdigest()[:16]
        try:
            with pq.ParquetFile(path) as parquet:
                names = set(parquet.schema_arrow.names)
                rows = parquet.metadata.num_rows
        except ValueError as error:
            raise SourceUnreadable(f"{path} cannot be read: {error}") from None
    if missing := [name for name in _COLUMNS if name not in names]:
        raise SourceUnreadable(f"{path} is not of neptune-exporter: it has no column {', '.join(missing)}")
    return Part(path, mark, rows)


def read_runs_of(parts: list[Part]) -> Iterator[tuple[RunKey, Batch]]:
    """Read all rows, in batches of one run each.

    Raises:
        SourceUnreadable: a part cannot be read.
    """
    for number, part in enumerate(parts):
        for group, numbers, rows in _read(part):
            for key in _keys(rows):
                yield key, _of_run(key, Batch(number, group, numbers, rows))


def read_rows(parts: list[Part], key: RunKey, groups: Iterable[tuple[int, int]]) -> Iterator[Batch]:
    """Read the rows of a run from some row groups, each given by the place of its part and its own.

    Raises:
        SourceUnreadable: a part cannot be read.
    """
    of_parts: dict[int, set[int]] = {}
    for part, group in groups:
        of_parts.setdefault(part, set()).add(group)
    for number in sorted(of_parts):
        for group, numbers, rows in _read(parts[number], of_parts[number]):
            yield _of_run(key, Batch(number, group, numbers, rows))


def _read(part: Part, groups: set[int] | None = None) -> Iterator[tuple[int, list[int], Any]]:
    """Read row groups in pieces: the group's number, the rows' numbers in the file, and the rows."""
    import pyarrow.parquet as pq

    start = 0
    with reading(part.path), pq.ParquetFile(part.path, pre_buffer=False) as parquet:
        for group in range(parquet.num_row_groups):
            if groups is not None and group not in groups:
                start += parquet.metadata.row_group(group).num_rows
                continue
            for rows in parquet.iter_batches(_BATCH, row_groups=[group], columns=list(_COLUMNS)):
                yield group, list(range(start, start + rows.num_rows)), _in_whole_numbers(rows)
                start += rows.num_rows


def _in_whole_numbers(rows: Any) -> Any:
    """Convert steps and times to integers, because Python's own calendar ends before theirs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = rows.schema.names
    columns = dict(zip(names, rows.columns, strict=True))
    steps = columns["step"].cast(pa.decimal128(25, 6))
    columns["step"] = pc.multiply(steps, pa.scalar(Decimal(STEP_UNIT), pa.decimal128(7, 0))).cast(pa.int64())
    for name in ("timestamp", "datetime_value"):
        columns[name] = columns[name].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return pa.RecordBatch.from_pydict(columns)


def _keys(rows: Any) -> list[RunKey]:
    import pyarrow as pa

    keys = pa.Table.from_batches([rows]).group_by(["project_id", "run_id"], use_threads=False).aggregate([])
    return [
        RunKey(project or "", run or "")
        for project, run in zip(*(column.to_pylist() for column in keys.columns), strict=True)
    ]


def _of_run(key: RunKey, batch: Batch) -> Batch:
    """Select the rows that belong to a run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    projects, runs = (pc.fill_null(batch.rows.column(name), "") for name in ("project_id", "run_id"))
    own = pc.and_(pc.equal(projects, key.project), pc.equal(runs, key.run))
    if pc.all(own).as_py():
        return batch
    return batch._replace(
        numbers=pa.array(batch.numbers).filter(own).to_pylist(), rows=batch.rows.filter(own)
    )
