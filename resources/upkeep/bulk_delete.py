"""Deleting many files of a store: on S3 a thousand with one request.

Arrow deletes one file at a time, and writes an empty object for the folder each time: three requests, of
which S3 charges one as a write.
"""

from collections.abc import Sequence

from halving.errors import StoreError, StoreUnavailable
from halving.maintenance.compaction import delete_each
from halving.store.store import Store
from resources.s3_client import s3_client

_MOST = 1_000  # that S3 takes in one request
_FEW = 2


def delete_at_once(store: Store, names: Sequence[str]) -> None:
    """Delete files of a store; those that are gone already are fine.

    Raises:
        StoreError: the store refused one of them.
    """
    if not store.root.startswith("s3://") or len(names) <= _FEW:
        delete_each(store, names)
        return
    from botocore.exceptions import BotoCoreError, ClientError

    client = s3_client(store)
    paths = [store.path(name).partition("/") for name in names]
    for at in range(0, len(paths), _MOST):
        part = paths[at : at + _MOST]
        try:
            asked = {"Objects": [{"Key": key} for _, _, key in part], "Quiet": True}
            refused = client.delete_objects(Bucket=part[0][0], Delete=asked).get("Errors", [])
        except (BotoCoreError, ClientError) as error:
            raise StoreUnavailable(
                f"cannot delete {len(part)} files of {store.address(names[at])} and after: {error}"
            ) from error
        if refused:
            raise StoreError(
                f"cannot delete {refused[0].get('Key')} of {store.address('')}: {refused[0].get('Message')}"
            )
