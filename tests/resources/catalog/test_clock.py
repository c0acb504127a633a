"""The clock that all processes on a catalog compare times by."""

import time

import pytest

from resources.catalog import Catalog, clock

on_postgres = pytest.mark.parametrize("any_catalog", ["postgres"], indirect=True)


@on_postgres
def test_a_machines_own_clock_that_is_set_back_changes_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now - 3600)
    assert catalog.now() == pytest.approx(now, abs=60)


@on_postgres
@pytest.mark.parametrize("wrong", [-3600.0, 3600.0])
def test_an_old_reading_of_the_servers_clock_is_renewed_before_a_connection_is_used(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    now = time.time()
    catalog._server_clock.set(now + wrong)  # as if the server's had been set since
    with catalog.read():
        assert catalog.now() == pytest.approx(now + wrong, abs=60), "it was read a moment ago"
    monkeypatch.setattr(clock, "_READ_AGAIN_SECONDS", -1.0)
    with catalog.engine.connect():
        assert catalog.now() == pytest.approx(now, abs=60)
