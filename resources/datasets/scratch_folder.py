"""A scratch folder for a snapshot in the making, on the store's own disk if it has one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from halving import Store
from halving.machine.temporary_folders import folder_of_user, temporary_folder
from halving.store.faults import store_faults


@contextlib.contextmanager
def scratch_folder(store: Store) -> Iterator[Path]:
    """Make a new folder that is deleted at the end; leftovers of killed processes are deleted first.

    Raises:
        StoreError: the disk refuses it.
    """
    with contextlib.ExitStack() as stack:
        with store_faults(f"cannot prepare a snapshot of {store.root}"):
            base = folder_of_user("snapshots") if store.folder is None else store.folder / "shards"
            folder = stack.enter_context(temporary_folder(base))
        yield folder
