"""Datasets in folders and behind a gate, and what is hashed of them."""

import secrets
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from halving import Dataset, Store
from halving.data import verified_shards
from halving.data.shards import Shard
from halving.data.verified_shards import VerifiedShards
from halving.store.backoff import backoff
from tests.s3 import S3, Gate
from tests.sdk.data.sharded import ROWS, counting_tables, sharded_dataset


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """Datasets in a folder, by what they consist of."""
    store = Store(tmp_path_factory.mktemp("loader") / "store")
    return {
        "four shards": sharded_dataset(store, *counting_tables(*ROWS)),
        "one shard": sharded_dataset(store, *counting_tables(83), name="one"),
    }


@pytest.fixture
def dataset(any_store: Store) -> Dataset:
    """A dataset of four shards, in a folder and on an object store."""
    return sharded_dataset(any_store, *counting_tables(*ROWS))


@pytest.fixture
def remote(s3: S3, s3_gate: Gate) -> Store:
    """A store that is reached through the gate."""
    return Store(s3.root(secrets.token_hex(6), endpoint=s3_gate.endpoint))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the cache of shards."""
    return tmp_path / "cache" / "shards"


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away is asked often."""
    monkeypatch.setattr("halving.store.retry.backoff", partial(backoff, 0.1, 0.2))


@pytest.fixture
def no_settling_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file that has just been written be remembered, too."""
    monkeypatch.setattr(verified_shards, "_SETTLED_SECONDS", -3600.0)


@pytest.fixture
def hashed_shards(monkeypatch: pytest.MonkeyPatch) -> list[Shard]:
    """The shards that this process hashes, in that order."""
    shards: list[Shard] = []
    original = VerifiedShards._hash

    def record_hash(verified: VerifiedShards, file: Any, shard: Shard) -> str:
        shards.append(shard)
        return original(verified, file, shard)

    monkeypatch.setattr(VerifiedShards, "_hash", record_hash)
    return shards
