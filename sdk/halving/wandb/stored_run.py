"""What the store has of a run that is opened again."""

from typing import Any, NamedTuple

from halving.errors import NotFound
from halving.records.amendments import newest_amendment
from halving.records.run_record import RunRecords
from halving.store.store import Store


class StoredRun(NamedTuple):
    """A run's params and tags as they are now, and the step after its last one."""

    params: dict[str, Any]
    tags: dict[str, str]
    next_step: int


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
    amended = newest_amendment(store, records.folder, store.names(records.folder))
    return StoredRun(
        params=amended.get("params", record["params"]),
        tags=amended.get("tags", record["parent"].get("tags", {})),
        next_step=_last_step(store, project, run) + 1,
    )


def _last_step(store: Store, project: str, run: str) -> int:
    """The greatest step of what the script logged; -1 if there is none.

    Metrics of the machine have steps of their own.
    """
    from halving.query.curve_stats import greatest_step

    return greatest_step(store, project, run, lambda key: not key.startswith("system/"))
