"""Retention that nobody asks for: only where a policy says so, on a disk, when something may be old enough, and once a day."""

from datetime import UTC, datetime, timedelta

import pytest

from halving import Store
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.retention.by_itself import is_due, last_time, note
from resources.retention.carry_out import Outcome
from resources.retention.gone import Gone
from resources.retention.policy import Policy
from resources.retention.policy_file import load_policy
from tests.backends import snapshot_row


def add_sweep(backend: Backend, days_ago: float) -> None:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
        session.flush()
        created = datetime.now(UTC) - timedelta(days=days_ago)
        about = {"name": "small", "project": "small", "spec": {}, "spec_digest": "d", "driver": "job", "ordinal": 0, "status": "finished"}
        session.add(SweepRow(id="small-1", snapshot="sha256:s", created_at=created, **about))


@pytest.mark.parametrize(("days_ago", "due"), [(1, False), (3, True)])
def test_it_is_due_once_a_sweep_is_old_enough_for_anything_to_go(backend: Backend, days_ago: float, due: bool) -> None:
    policy = load_policy(backend.store).policy
    assert not is_due(backend.store, backend.catalog, policy)
    add_sweep(backend, days_ago)
    assert is_due(backend.store, backend.catalog, policy) == due
    assert not is_due(backend.store, backend.catalog, Policy())
    assert not is_due(Store("s3://bucket/store?region=us-east-1"), backend.catalog, policy)


def test_it_is_due_once_a_day_and_says_what_went(backend: Backend) -> None:
    add_sweep(backend, 3)
    file = load_policy(backend.store)
    assert last_time(backend.store) is None
    note(backend.store, Outcome([Gone("small", "checkpoints", 3, 300)], file, {}, dry_run=False))
    last = last_time(backend.store)
    assert last is not None
    assert (last["bytes"], last["gone"]) == (300, [{"project": "small", "kind": "checkpoints", "count": 3, "bytes": 300}])
    now = datetime.now(UTC)
    assert not is_due(backend.store, backend.catalog, file.policy, now + timedelta(hours=23))
    assert is_due(backend.store, backend.catalog, file.policy, now + timedelta(hours=25))
    backend.store.replace("retention/last.json", b"damaged")
    assert is_due(backend.store, backend.catalog, file.policy)
