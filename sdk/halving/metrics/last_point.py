"""The last sign of life of an attempt that left no end: when it logged the newest of the points that the
store has.
"""

import contextlib
from datetime import datetime

from halving.errors import NotFound
from halving.metrics.manifest import RunFiles, project_folder, run_files
from halving.metrics.position import segments_of
from halving.store.store import Store

_TRIES = 3  # while compactions replace what was listed


def last_point(store: Store, project: str, run: str, attempt: int) -> float | None:
    """When the attempt's newest point was logged, seconds since 1970; None where the store has no point of
    it.

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
        # segments hold what came in the order in which it came, but for media: the newest has the newest
        # point
        with store.open_file(own[max(own)]) as file:
            return _latest(pq.ParquetFile(file), "wall_time", None)
    name = manifest.full or manifest.rollup
    if attempt not in manifest.absorbed or name is None:
        return None
    with store.open_file(f"{project_folder(project)}/{name}") as file:
        return _latest(
            pq.ParquetFile(file), *(("wall_time", attempt) if manifest.full else ("wall_time_last", None))
        )


def _latest(file: object, column: str, attempt: int | None) -> float | None:
    """The latest time of a column; of an attempt's rows alone, where one is given."""
    import pyarrow.compute as pc

    latest: datetime | None = None
    columns = [column] if attempt is None else [column, "attempt"]
    for batch in file.iter_batches(columns=columns):  # type: ignore[attr-defined]
        times = (
            batch[column] if attempt is None else batch[column].filter(pc.equal(batch["attempt"], attempt))
        )
        newest = pc.max(times).as_py()
        latest = newest if latest is None or (newest is not None and newest > latest) else latest
    return None if latest is None else latest.timestamp()
