"""Sweeps to have winners of."""

import pytest

from resources.backend import Backend
from resources.catalog import SweepRow, utcnow
from tests.backends import snapshot_row


@pytest.fixture
def sweeps(either_backend: Backend) -> list[str]:
    """Four sweeps to have winners of, on two snapshots."""
    with either_backend.catalog.write() as session:
        for digest in ("sha256:s0", "sha256:s1"):
            session.add(snapshot_row(digest))
        for number in range(4):
            session.add(
                SweepRow(
                    id=f"digits-{number}",
                    name="digits",
                    spec={},
                    spec_digest="d",
                    snapshot="sha256:s0",
                    driver="job",
                    ordinal=number,
                    status="evaluating",
                    created_at=utcnow(),
                )
            )
    return [f"digits-{number}" for number in range(4)]
