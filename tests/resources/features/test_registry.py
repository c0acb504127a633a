"""The registry of feature views: a version means one thing, and its users are known."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halving import InvalidInput, NotFound
from resources.backend import Backend
from resources.features.materialize import materialize_all
from resources.features.registry import (
    Consumers,
    all_consumers,
    check_registered,
    consumers,
    register,
    registered_views,
    views_of_model,
)
from resources.features.view import FeatureView, parse_view
from resources.features.wanted import project_view
from resources.registry.versions import as_dict
from resources.sweep_spec import SweepSpec
from tests.backends import CHECKOUT
from tests.server.registry import promote_winner

VIEW: dict[str, Any] = {
    "name": "clicks",
    "version": 1,
    "entity": ["user_id"],
    "event_time": "ts",
    "delay": "1h",
    "source": {"files": "clicks/*.parquet"},
    "schema": {"ctr": "double"},
}


def view(**changes: Any) -> FeatureView:
    return parse_view({**VIEW, **changes})


def test_the_same_definition_again_changes_nothing(either_backend: Backend) -> None:
    first = register(either_backend.catalog, view())
    assert register(either_backend.catalog, view()) == first
    assert registered_views(either_backend.catalog) == {"clicks@1": first}


def test_only_a_new_feature_that_may_be_null_keeps_the_version(
    either_backend: Backend,
) -> None:
    catalog = either_backend.catalog
    first = register(catalog, view())
    grown = register(catalog, view(schema={"ctr": "double", "night": "bool"}))
    assert grown.created_at == first.created_at
    assert list(grown.view.features) == ["ctr", "night"]
    for changes, why in [
        (
            {"schema": {"ctr": "double", "night": "bool", "shown": "int64 not null"}},
            "schema.shown is new and must not be null",
        ),
        ({}, "schema.night is gone"),
        ({"schema": {"ctr": "float", "night": "bool"}}, "schema.ctr was double and is float"),
        ({"schema": {"ctr": "double", "night": "bool"}, "delay": "2h"}, "delay was 1h and is 2h"),
    ]:
        for act in (check_registered, register):
            with pytest.raises(InvalidInput, match=f"{why}.*Give version: 2"):
                act(catalog, view(**changes))
    assert registered_views(catalog) == {"clicks@1": grown}
    register(catalog, view(version=2, delay="2h"))
    assert list(registered_views(catalog)) == ["clicks@1", "clicks@2"]


def test_other_code_is_refused_until_the_reason_for_the_same_values_is_recorded(
    either_backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = either_backend.catalog
    shape = view(transform="rates_of_clicks:rate", source={"function": "rates_of_clicks:rows"})
    module = (
        "from factors_of_clicks import FACTOR\n\ndef rows():\n    return {}\n\ndef rate(rows):\n    return "
        "rows * FACTOR\n"
    )
    (tmp_path / "rates_of_clicks.py").write_text(module.format(1))
    (tmp_path / "factors_of_clicks.py").write_text("FACTOR = 2")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("rates_of_clicks", "factors_of_clicks"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # of the other backend's project
    first = register(catalog, shape)
    (tmp_path / "factors_of_clicks.py").write_text("FACTOR = 1 + 1")
    for act in (check_registered, register):
        with pytest.raises(
            InvalidInput, match=r"the code that transform stands on changed\. Give version: 2"
        ):
            act(catalog, shape)
        with pytest.raises(InvalidInput, match="accept_same_values is empty"):
            act(catalog, shape, " ")
    check_registered(catalog, shape, "a sum")
    assert registered_views(catalog) == {"clicks@1": first}  # until it is materialised
    accepted = [
        register(catalog, shape, "a sum"),
        register(catalog, shape, "said again"),
        register(catalog, shape),
    ]
    assert [
        [(entry["reason"], entry["changed"]) for entry in registered.accepted] for registered in accepted
    ] == [[("a sum", ["transform"])]] * 3
    (tmp_path / "rates_of_clicks.py").write_text(module.format(3))
    with pytest.raises(
        InvalidInput, match=r"definition: the code that source\.function stands on changed\. Give"
    ):
        register(catalog, shape)
    assert [entry["reason"] for entry in register(catalog, shape, "other rows").accepted] == [
        "a sum",
        "other rows",
    ]


def test_the_consumers_of_a_version_are_its_sweeps_and_their_models(
    either_backend: Backend, small_spec: Callable[..., SweepSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_FEATURES", str(CHECKOUT / "features"))
    catalog = either_backend.catalog
    features = ["clicks@1:ctr", "clicks@1:night as at_night"]
    materialize_all(either_backend.store, project_view("clicks@1"))
    dataset = {
        "name": "ctr",
        "labels": "examples.clicks:labels",
        "features": features,
        "label_time": "visited_at",
        "target": "ordered",
    }
    row = promote_winner(either_backend, small_spec(name="ctr", dataset=dataset, max_trials=1))
    other = promote_winner(either_backend, small_spec(max_trials=1))
    assert consumers(catalog, "clicks", 1) == Consumers([str(row.sweep)], ["ctr 1.0.0"])
    assert consumers(catalog, "clicks", 2) == Consumers()
    assert list(all_consumers(catalog)) == ["clicks@1"]
    assert views_of_model(catalog, "ctr", "1.0.0") == {"clicks@1": features}
    with catalog.read() as session:
        assert [as_dict(session, version)["features"] for version in (row, other)] == [features, []]
    assert views_of_model(catalog, other.model, other.version) == {}
    with pytest.raises(NotFound, match=r"no version '9\.0\.0' of model 'ctr'"):
        views_of_model(catalog, "ctr", "9.0.0")
