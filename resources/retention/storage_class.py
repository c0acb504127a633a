"""The cold tier as another storage class of the same bucket.

Objects get a tag, by which lifecycle rules (``deploy/s3-lifecycle.json``) move them. A policy accepts only
classes that can be read at once. An object that is written again has no tag, and is of the first class again.
"""

from collections.abc import Collection, Iterator

from halving.errors import InvalidInput, StoreError
from halving.maintenance.cold_tier import Movable
from halving.store.cold_roots import BLOBS
from halving.store.store import Store, blob_name
from resources.s3_client import s3_client

TAG = "halving-storage-class"
_FIRST = "STANDARD"


def check_storage_class(store: Store) -> None:
    """Refuse a storage class for a store that has none.

    Raises:
        InvalidInput: it is not on S3.
    """
    if not store.root.startswith("s3://"):
        raise InvalidInput(
            f"cold.storage_class is not accepted for the store {store.root}, which is not on S3: give "
            "cold.root"
        )


def tag_blobs(
    store: Store, blobs: Collection[Movable], storage_class: str, *, dry_run: bool = False
) -> Iterator[Movable]:
    """Tag the blobs that are still of the first class, and yield them.

    Tagging a blob again, before the rules have moved it, changes nothing.

    Raises:
        StoreError: the store refused.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    wanted = {blob_name(blob.digest): blob for blob in blobs}
    if not wanted:
        return
    client = s3_client(store)
    (bucket, _, prefix) = store.path("").partition("/")
    try:
        for folder in sorted({name.removeprefix(BLOBS)[:2] for name in wanted}):
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=f"{prefix}{BLOBS}{folder}/"
            )
            for entry in (entry for page in pages for entry in page.get("Contents", ())):
                blob = wanted.get(entry["Key"].removeprefix(prefix))
                if blob is None or entry.get("StorageClass", _FIRST) != _FIRST:
                    continue
                if not dry_run:
                    tags = {"TagSet": [{"Key": TAG, "Value": storage_class}]}
                    client.put_object_tagging(Bucket=bucket, Key=entry["Key"], Tagging=tags)
                yield blob
    except (BotoCoreError, ClientError) as error:
        raise StoreError(f"cannot tag objects of {store.root.partition('?')[0]}: {error}") from error
