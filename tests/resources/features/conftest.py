"""An empty online store of each kind: what holds for one must hold for the other."""

from pathlib import Path

import pytest

from tests.redis_server import Redis


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.smoke)])
def online(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty online store."""
    if request.param == "sqlite":
        return str(tmp_path / "online.db")
    server: Redis = request.getfixturevalue("redis")
    return server.address()
