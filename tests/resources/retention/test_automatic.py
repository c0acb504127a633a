"""Automatic retention: only where a policy says so, on a disk, with its catalog, and once a day."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from halving import Store
from resources.backend import Backend
from resources.execution.kubernetes.cluster_config import VARIABLE
from resources.retention.automatic import read_last, summarize, why_not_due, write_last
from resources.retention.carry_out import Outcome
from resources.retention.cold import KIND as MOVED
from resources.retention.gone import Gone
from resources.retention.policy import Policy
from resources.retention.policy_file import PolicyFile, load_policy


def test_it_is_due_on_a_disk_where_the_policy_is_automatic(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = load_policy(backend.store)
    assert why_not_due(backend.store, file) is None
    assert (
        why_not_due(backend.store, PolicyFile(Policy(), "retention.yaml"))
        == "the policy does not say automatic: true"
    )
    remote = "an object store, or a cluster's, is cleaned by the schedule nightly_retention"
    assert why_not_due(Store("s3://bucket/store?region=us-east-1"), file) == remote
    (tmp_path / "cluster.yaml").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cluster.yaml"))
    assert why_not_due(backend.store, file) == remote


def test_a_store_of_scripts_needs_no_catalog_and_one_of_sweeps_needs_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog made anew would know nothing of what its sweeps need."""
    store = Store(tmp_path / "scripts")
    monkeypatch.delenv("HALVING_CATALOG", raising=False)
    file = load_policy(store)
    assert why_not_due(store, file) is None
    store.create("datasets/points/0123/manifest.json", b"{}")
    said = "the store has snapshots of datasets, and no catalog: HALVING_CATALOG says where it is"
    assert why_not_due(store, file) == said
    monkeypatch.setenv("HALVING_CATALOG", "sqlite:///elsewhere.db")
    assert why_not_due(store, file) is None


def test_a_disk_that_a_team_shares_is_not_cleaned_as_a_laptop_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    monkeypatch.setenv("HALVING_CATALOG", "postgresql+psycopg://catalog.internal/halving")
    said = (
        "the shipped default is for a laptop, and this catalog is a server's: a file retention.yaml in the "
        "store says what is kept"
    )
    assert why_not_due(store, load_policy(store)) == said
    store.create("retention.yaml", b"automatic: true")
    assert why_not_due(store, load_policy(store)) is None


def test_it_is_due_once_a_day_and_says_what_went(backend: Backend) -> None:
    file = load_policy(backend.store)
    assert read_last(backend.store) is None
    write_last(backend.store, Outcome([Gone("small", "checkpoints", 3, 300)], file, {}, dry_run=False))
    last = read_last(backend.store)
    assert last is not None
    assert (last["bytes"], last["gone"]) == (
        300,
        [{"project": "small", "kind": "checkpoints", "count": 3, "bytes": 300}],
    )
    noted = datetime.fromtimestamp(last["time"], UTC)
    assert why_not_due(backend.store, file, noted) == "it was carried out today"
    assert why_not_due(backend.store, file, noted + timedelta(days=1)) is None
    # a clock that was ahead holds nothing up
    assert why_not_due(backend.store, file, noted - timedelta(days=1)) is None
    backend.store.replace("retention/last.json", b"damaged")
    assert why_not_due(backend.store, file) is None


def test_a_line_says_what_went_and_what_moved() -> None:
    last = {"bytes": 300, "policy": "the shipped default", "shipped": True}
    change = "by the shipped default; a file retention.yaml in the store changes what is kept"
    assert summarize({**last, "gone": []}) == f"old data: nothing had to go, {change}"
    rows = [
        Gone("a", "checkpoints", 3, 200)._asdict(),
        Gone("b", "checkpoints", 1, 100)._asdict(),
        Gone("a", MOVED, 2, 50)._asdict(),
    ]
    assert (
        summarize({**last, "gone": rows}) == f"old data: 300 B deleted (4 checkpoints), 2 {MOVED}, {change}"
    )
