"""When an attempt that recorded no end last gave a sign of life: the time of its newest stored point."""

import contextlib
from datetime import datetime

from halving.errors import NotFound
from halving.metrics.manifest import RunFiles, project_folder, run_files
from halving.metrics.position import segments_of
from halving.store.store import Store

_TRIES = 3  # while compactions replace what was listed


def last_point(store: Store, project: str, run: str, attempt: int) -> float | None:
    """When the attempt's newest point was logged, in seconds since 1970; None where the store has none.

    Where retention left only rollups, which do not tell attempts apart, it is that of the run's newest point.

    Raises:
        StoreError: a metric file cannot be read.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError, NotFound):
            return _last_point(store, project, attempt, run_files(store, project, run))
    return None


def _last_point(store: Store, project: str, attempt: int, files: RunFiles) -> float | None:
    import pyarrow.parquet as pq

    manifest = files.manifest
    own = segments_of(files, attempt)
    if own:
        # Except for media, segments are in the order of logging, so the newest one has the newest point.
        with store.open_file(own[max(own)]) as file:
            return _latest(pq.ParquetFile(file), "wall_time", None)
    name = manifest.full or manifest.rollup
    if attempt not in manifest.absorbed or name is None:
        return None
    with store.open_file(f"{project_folder(project)}/{name}") as file:
        if manifest.full:
            return _latest(pq.ParquetFile(file), "wall_time", attempt)
        return _latest(pq.ParquetFile(file), "wall_time_last", None)


def _latest(file: object, column: str, attempt: int | None) -> float | None:
    """The latest time in a column; of one attempt's rows alone where ``attempt`` is set."""
    import pyarrow.compute as pc

    latest: datetime | None = None
    columns = [column]
    if attempt is not None:
        columns.append("attempt")
    for batch in file.iter_batches(columns=columns):  # type: ignore[attr-defined]
        times = batch[column]
        if attempt is not None:
            times = times.filter(pc.equal(batch["attempt"], attempt))
        newest = pc.max(times).as_py()
        if latest is None or (newest is not None and newest > latest):
            latest = newest
    if latest is None:
        return None
    return latest.timestamp()
