"""A folder for a snapshot that is being made, on the store's own disk where it has one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from halving import Store
from halving.machine.temporary_folders import folder_of_user, temporary_folder
from halving.store.faults import store_faults


@contextlib.contextmanager
def scratch_folder(store: Store) -> Iterator[Path]:
    """A new folder, deleted at the end; what a killed process left there is deleted first.

    Raises:
        StoreError: the disk refuses it.
    """
    with contextlib.ExitStack() as stack:
        with store_faults(f"cannot prepare a snapshot of {store.root}"):
            base = store.folder / "shards" if store.folder is not None else folder_of_user("snapshots")
            folder = stack.enter_context(temporary_folder(base))
        yield folder
