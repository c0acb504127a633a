"""Deletion of many files of a store, on S3 a thousand with one request.

Arrow would delete one file at a time, and write an empty object for the folder each time: three requests, of
which S3 charges one as a write.
"""

from collections.abc import Sequence

from halving.errors import StoreError, StoreUnavailable
from halving.maintenance.compaction import delete_each
from halving.store.store import Store
from resources.s3_client import s3_client

_MAX_KEYS = 1_000  # S3 takes no more in one request.
_FEW = 2


def delete_at_once(store: Store, names: Sequence[str]) -> None:
    """Delete files of a store; files that are gone already are no error.

    Raises:
        StoreError: the store refused one of them.
    """
    if not store.root.startswith("s3://") or len(names) <= _FEW:
        delete_each(store, names)
        return
    from botocore.exceptions import BotoCoreError, ClientError

    client = s3_client(store)
    paths = [store.path(name).partition("/") for name in names]
    for start in range(0, len(paths), _MAX_KEYS):
        part = paths[start : start + _MAX_KEYS]
        try:
            objects = {"Objects": [{"Key": key} for _, _, key in part], "Quiet": True}
            refused = client.delete_objects(Bucket=part[0][0], Delete=objects).get("Errors", [])
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(
                f"cannot delete {len(part)} files of {store.address(names[start])} and after: {error}"
            ) from error
        if refused:
            raise StoreError(
                f"cannot delete {refused[0].get('Key')} of {store.address('')}: {refused[0].get('Message')}"
            )
