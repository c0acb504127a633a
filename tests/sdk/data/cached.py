"""Shards of random bytes, and what of them is in the cache."""

import secrets
from pathlib import Path

from halving import Store
from halving.data.shard_cache import ShardCache
from halving.data.shards import Shard
from tests.sdk.data.sharded import put_shard


def names(folder: Path) -> list[str]:
    """The sorted names of the files in a cache, finished or not."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def random_shard(store: Store, size: int = 100_000) -> Shard:
    """Put random bytes into a store as a shard."""
    return put_shard(store, secrets.token_bytes(size), 1)


def content(cache: ShardCache, shard: Shard) -> bytes:
    """The bytes of a shard that a cache opens."""
    return cache.open(shard).tobytes()
