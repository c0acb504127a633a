"""What the store has of a run that is opened again."""

import json
from typing import Any, NamedTuple

from halving.errors import NotFound
from halving.metrics.manifest import project_folder, run_files
from halving.metrics.position import segments_of
from halving.query.curve_stats import greatest_step
from halving.records.amendments import newest_amendment
from halving.records.run_record import RunRecords
from halving.store.server_store import ServerStore
from halving.store.store import Store

_SYSTEM = "system/"  # metrics of the machine, which have steps of their own


class StoredRun(NamedTuple):
    """A run's params and tags as they are now, and the summary values that its attempts have recorded."""

    params: dict[str, Any]
    tags: dict[str, str]
    summary: dict[str, float]


def read_stored_run(store: Store, project: str, run: str) -> StoredRun | None:
    """Read a run; None if there is none.

    Raises:
        StoreError: it cannot be read.
    """
    records = RunRecords(store, project, run)
    try:
        record = records.read()
    except NotFound:
        return None
    names = store.names(records.folder)
    amended = newest_amendment(store, records.folder, names)
    summary: dict[str, float] = {}
    for name in sorted(name for name in names if name.startswith("end-")):
        summary |= json.loads(store.read(f"{records.folder}/{name}")).get("summary") or {}
    summary = (amended.get("summary") or {}).get("values", {}) | summary
    return StoredRun(
        params=amended.get("params", record["params"]),
        tags=amended.get("tags", record["parent"].get("tags", {})),
        summary={name: value for name, value in summary.items() if not name.startswith(_SYSTEM)},
    )


def read_next_step(store: Store, project: str, run: str) -> int:
    """The step after the last one that a run's script logged, whose journals are in the store.

    Raises:
        StoreError: a file of points cannot be read.
    """
    if isinstance(store, ServerStore):
        return _greatest_step_in_newest(store, project, run) + 1
    return greatest_step(store, project, run, lambda key: not key.startswith(_SYSTEM)) + 1


def _greatest_step_in_newest(store: Store, project: str, run: str) -> int:
    """The greatest step in the newest segments and in the rollup; -1 if there is none.

    A server gives whole files, so the older segments of each attempt are not read: within an attempt steps
    only grow.
    """
    files = run_files(store, project, run)
    greatest = -1
    for attempt in {attempt for attempt, _ in files.segments.values()}:
        own = segments_of(files, attempt)
        for sequence in sorted(own, reverse=True):
            step = _greatest_in(store, own[sequence], "step")
            greatest = max(greatest, step)
            if step >= 0:
                break
    if files.manifest.rollup:
        rollup = f"{project_folder(project)}/{files.manifest.rollup}"
        greatest = max(greatest, _greatest_in(store, rollup, "step_last"))
    return greatest


def _greatest_in(store: Store, name: str, column: str) -> int:
    """The greatest step of what a script logged in a file; -1 if there is none."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with store.open_file(name) as file:
        table = pq.read_table(file, columns=["key", column])
    is_system = pc.starts_with(table["key"].cast("string"), pattern=_SYSTEM)
    steps = table[column].filter(pc.invert(is_system))
    if not len(steps):
        return -1
    return int(pc.max(steps).as_py())
