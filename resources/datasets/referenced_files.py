"""Verify that the files to which a snapshot refers are unchanged."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from halving import Dataset
from halving.data.referenced_files import IDENTITIES, ReferencedFile, referenced_file
from halving.data.shards import Shard, open_shard
from halving.errors import NotFound, StoreError, StoreUnavailable

_REQUESTS = 16  # requests at a time; each is short, and waits for the network


@dataclass(frozen=True)
class ChangedFile:
    """A file that has changed, and how."""

    location: str
    change: str


def verify_files(dataset: Dataset, shards: Iterable[Shard]) -> Iterator[ChangedFile | None]:
    """Check each file to which rows of some shards refer; yield how it changed, or None if it did not.

    A file with a digest is read. For any other file S3 is asked.

    Raises:
        StoreUnavailable: where a file lies cannot be reached.
    """
    if not is_by_reference(dataset.manifest):
        return
    wanted = ["location", *(name for name in IDENTITIES if name in dataset.manifest["schema"])]
    with ThreadPoolExecutor(_REQUESTS) as pool:
        for shard in shards:
            with open_shard(dataset.store, shard) as reader:
                for number in range(reader.num_record_batches):
                    rows = reader.get_batch(number).select(wanted).to_pylist()
                    yield from pool.map(_check_file, map(referenced_file, rows))


def is_by_reference(manifest: dict[str, Any]) -> bool:
    """Whether a snapshot's rows refer to files.

    They do if its spec says so, and a transform has kept the columns for it.
    """
    source = manifest["recipe"].get("source") or manifest["recipe"].get("labels")
    is_requested = isinstance(source, dict) and source.get("reference") is not None
    return (
        is_requested
        and "location" in manifest["schema"]
        and any(name in manifest["schema"] for name in IDENTITIES)
    )


def _check_file(file: ReferencedFile) -> ChangedFile | None:
    try:
        file.check()
    except StoreUnavailable:
        raise
    except (NotFound, StoreError) as error:
        return ChangedFile(file.location, str(error))
    return None
