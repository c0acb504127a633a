"""The features listed with a champion are what a serving process looks up and gets."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from fastapi.testclient import TestClient

from examples import clicks
from halving import Dataset
from halving.cli.main import main
from halving.features import OnlineFeatures
from resources.backend import Backend
from resources.catalog import ModelVersionRow
from resources.features.online import push
from resources.features.wanted import online_address, project_view
from resources.sweep_spec import SweepSpec
from tests.backends import CHECKOUT
from tests.server import joined
from tests.server.registry import promote_winner

Spec = Callable[..., SweepSpec]
NOW = datetime(2026, 3, 3, 20, tzinfo=UTC)


@pytest.fixture
def champion(backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch) -> ModelVersionRow:
    """A model of labels with features.

    Three days of features were made, and what was known by then was pushed.
    """
    monkeypatch.setenv("HALVING_FEATURES", str(CHECKOUT / "features"))
    monkeypatch.delenv("HALVING_ONLINE", raising=False)
    joined.with_features(backend, *(date(2026, 3, day) for day in (1, 2, 3)))
    version = promote_winner(backend, small_spec(name="orders", dataset=joined.SPEC, max_trials=1))
    assert version.stage == "champion"
    push(backend.store, project_view("clicks@1"), online_address(backend.store), until=NOW)
    return version


def last_features() -> dict[int, dict[str, Any]]:
    """Each user's click rate and night in the last loaded hour, computed from the rows."""
    rows = clicks.hourly()
    rows = rows.filter(pc.less_equal(rows["loaded_at"], pa.scalar(NOW, rows["loaded_at"].type)))
    last: dict[int, dict[str, Any]] = {}
    for row in rows.sort_by("ts").to_pylist():
        last[row["user_id"]] = {"ctr": row["clicked"] / row["shown"], "at_night": row["ts"].hour <= 6}
    return last


def test_the_features_of_a_champion_are_looked_up_online_as_they_were_pushed(
    local: TestClient, backend: Backend, champion: ModelVersionRow, capsys: pytest.CaptureFixture[str]
) -> None:
    over_http = local.get(f"/api/v1/models/{champion.model}/champion").json()["features"]
    capsys.readouterr()
    assert main(["models", "list", "--json", "--root", backend.store.root]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["models"]
    assert over_http == listed["features"] == joined.SPEC["features"]

    expected = last_features()
    assert len(expected) == clicks.USERS
    with OnlineFeatures(online_address(backend.store), over_http) as online:
        assert online.columns == ["ctr", "at_night"]
        assert set(online.columns) < set(
            Dataset(backend.store, "ctr", str(champion.snapshot)).manifest["schema"]
        ), "it was trained on them"
        users = pa.table({"user_id": [*expected, clicks.USERS]})
        assert online.read(users, now=NOW).to_pylist() == [
            *expected.values(),
            {"ctr": None, "at_night": None},
        ]
        assert all(online.get({"user_id": user}, now=NOW) == values for user, values in expected.items())
