"""The points that a run has logged in the last seconds, which only this machine's journals have."""

import contextlib
from typing import TYPE_CHECKING

from halving.errors import NotFound
from halving.journal import directory
from halving.journal.tail import points_after
from halving.metrics.manifest import RunFiles, run_files
from halving.metrics.position import position_in_store
from halving.metrics.segments import points_table
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa


def tail(store: Store, project: str, run: str, files: RunFiles) -> "pa.Table | None":
    """Read the points in this machine's journals that are in none of ``files``.

    Raises:
        FileNotFoundError: more was drained since the files were listed; list them again.
    """
    import pyarrow as pa

    tables = []
    for folder in directory.attempt_folders(store, project, run):
        attempt = directory.whose(folder).attempt
        with contextlib.suppress(NotFound):
            # NotFound: the files were compacted since they were listed; the caller notices when it opens
            # them.
            before = position_in_store(store, attempt, files)
            points = points_after(folder, before[1])
            try:
                after = position_in_store(store, attempt, run_files(store, project, run))
            except NotFound as error:
                raise FileNotFoundError(f"{folder}: what was drained of it is compacted") from error
            if after != before:
                raise FileNotFoundError(f"{folder}: more of it is drained")
            if points:
                tables.append(points_table(run, attempt, *points))
    if not tables:
        return None
    return pa.concat_tables(tables, promote_options="permissive").unify_dictionaries()
