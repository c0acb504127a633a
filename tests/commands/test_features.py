"""``halving features``: days are materialised, pushed and looked up, and what is refused is named."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from examples import clicks
from halving import Dataset
from halving.cli.main import main
from halving.features import OnlineFeatures
from resources.backend import Backend
from resources.catalog import FeatureViewRow
from resources.evaluation.report import load_report
from resources.features.partitions import partitions
from resources.features.wanted import online_address
from resources.registry.artifacts import manifest_of_winner
from tests.backends import CHECKOUT
from tests.commands.shell import Shell

Command = Callable[..., tuple[int, str, str]]
MARCH = ("--from", "2026-03-01", "--to", "2026-03-03")


@pytest.fixture
def command(backend: Backend, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """``halving features …`` on the store: its status, output and errors."""
    monkeypatch.setenv("HALVING_FEATURES", str(CHECKOUT / "features"))
    monkeypatch.delenv("HALVING_ONLINE", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["features", *arguments, "--root", backend.store.root])
        out, err = capsys.readouterr()
        return status, " ".join(out.split()), err

    return run


def test_days_are_materialised_once_and_listed(command: Command, backend: Backend) -> None:
    status, out, _ = command("materialize", "clicks@1", *MARCH)
    assert (status, "3 days, 3 of them new" in out) == (0, True)
    again = json.loads(command("materialize", "clicks@1", *MARCH, "--json")[1])
    all_days = partitions(backend.store, "clicks", 1)
    assert [(day["day"], day["digest"], day["new"]) for day in again["days"]] == [
        (materialised.day.isoformat(), f"sha256:{materialised.sha256}", False) for materialised in all_days
    ]
    (listed,) = json.loads(command("list", "--json")[1])
    assert (listed["key"], listed["features"]) == ("clicks@1", {"ctr": "double", "night": "bool"})
    assert (listed["days"], listed["first"], listed["last"]) == (3, "2026-03-01", "2026-03-03")
    assert datetime.fromisoformat(listed["registered_at"])
    assert "3 days, 2026-03-01 to 2026-03-03" in command("list")[1]


def test_without_days_all_that_the_source_has_are_materialised(command: Command) -> None:
    assert (
        f"clicks@1: {clicks.DAYS + 1} days, {clicks.DAYS + 1} of them new"
        in command("materialize", "clicks@1")[1]
    )


def test_a_version_may_be_mended_until_a_day_of_it_is_made(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_FEATURES", str(tmp_path))
    text = (CHECKOUT / "features" / "clicks.yaml").read_text()
    for place, (text_now, status, message) in enumerate(
        [
            (text.replace("event_time: ts", "event_time: time"), 1, "time"),
            (text, 0, ""),
            (text.replace("ttl: 2d", "ttl: 3d"), 1, "ttl was 2d and is 3d. Give version: 2"),
        ]
    ):
        (tmp_path / "clicks.yaml").write_text(text_now)
        done, out, err = command("materialize", "clicks@1", *MARCH)
        assert (place, done, message in out + err) == (place, status, True)


def test_changed_code_is_refused_until_the_command_says_why_values_are_the_same(
    command: Command, backend: Backend
) -> None:
    assert command("materialize", "clicks@1", *MARCH)[0] == 0
    with backend.catalog.write(exclusive=True) as session:
        session.get_one(FeatureViewRow, ("clicks", 1)).code = {"source.function": "0" * 64}
    for act in (("materialize", "clicks@1", *MARCH), ("push",)):
        status, _, err = command(*act)
        assert (
            status,
            "the code that source.function stands on changed. Give version: 2" in " ".join(err.split()),
        ) == (1, True)
    assert command("materialize", "clicks@1", *MARCH, "--accept-same-values", "only faster")[0] == 0
    assert command("push")[0] == 0
    (listed,) = json.loads(command("list", "--json")[1])
    assert [(entry["reason"], entry["changed"]) for entry in listed["accepted"]] == [
        ("only faster", ["source.function"])
    ]
    assert "clicks@1: the code of source.function changed by" in command("list")[1]


def test_a_view_whose_code_changed_keeps_no_other_from_being_pushed(
    command: Command, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_FEATURES", str(tmp_path))
    text = (CHECKOUT / "features" / "clicks.yaml").read_text()
    for name in ("changed", "clicks"):
        (tmp_path / f"{name}.yaml").write_text(text.replace("name: clicks", f"name: {name}"))
        command("materialize", f"{name}@1", *MARCH)
    with backend.catalog.write(exclusive=True) as session:
        session.get_one(FeatureViewRow, ("changed", 1)).code = {"transform": "0" * 64}
    status, out, _ = command("push", "--until", "2026-03-03T20:00", "--json")
    changed, clicks_ = json.loads(out)
    assert (status, changed["view"], clicks_["view"], clicks_["entities"]) == (
        1,
        "changed@1",
        "clicks@1",
        clicks.USERS,
    )
    assert "the code that transform stands on changed" in changed["error"]
    status, out, _ = command("push")
    assert (status, "changed@1 was not pushed: " in out, "clicks@1: " in out) == (1, True, True)


def test_a_view_that_was_never_materialised_keeps_no_other_from_being_pushed(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_FEATURES", str(tmp_path))
    text = (CHECKOUT / "features" / "clicks.yaml").read_text()
    for name in ("another", "clicks"):
        (tmp_path / f"{name}.yaml").write_text(text.replace("name: clicks", f"name: {name}"))
    command("materialize", "clicks@1", *MARCH)
    status, out, _ = command("push", "--until", "2026-03-03T20:00", "--json")
    another, clicks_ = json.loads(out)
    assert (status, clicks_["entities"]) == (0, clicks.USERS)
    assert "another@1 has not been materialised" in another["error"]


@pytest.mark.parametrize("is_there", [True, False], ids=["an instance", "no instance"])
def test_dagster_shows_what_the_commands_have_made_where_there_is_an_instance(
    command: Command, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    import dagster as dg

    home = tmp_path / "dagster"
    monkeypatch.setenv("DAGSTER_HOME", str(home))
    if is_there:
        home.mkdir()
    command("materialize", "clicks@1", *MARCH)
    command("push", "--until", "2026-03-03T20:00")
    assert home.is_dir() == is_there
    if is_there:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            days = instance.get_materialized_partitions(dg.AssetKey(["feature_view", "clicks_v1"]))
            event = instance.get_latest_materialization_event(dg.AssetKey("online_features"))
        assert days == {"2026-03-01", "2026-03-02", "2026-03-03"}
        assert event is not None
        assert event.asset_materialization is not None
        assert str(event.asset_materialization.metadata["clicks@1"].value).startswith(
            f"{clicks.USERS} entities, "
        )


def test_a_dagster_that_cannot_be_written_changes_nothing_else(
    command: Command, backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dagster.yaml").write_text("storage: {sqlite: {base_dir: /dev/null/nowhere}}\n")
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    status, _, err = command("materialize", "clicks@1", *MARCH)
    assert (status, len(partitions(backend.store, "clicks", 1))) == (0, 3)
    assert f"the days are made, and could not be shown in Dagster ({tmp_path}): " in err


def test_what_is_pushed_is_looked_up_by_entity(command: Command) -> None:
    command("materialize", "clicks@1", *MARCH)
    assert (
        json.loads(command("push", "--until", "2026-03-03T20:00", "--json")[1])[0]["entities"] == clicks.USERS
    )
    values = json.loads(
        command(
            "get",
            "clicks@1:ctr",
            "clicks@1:night",
            "--entity",
            "user_id=3",
            "--at",
            "2026-03-03T20:00",
            "--json",
        )[1]
    )
    assert 0 <= values["ctr"] <= 1
    assert values["night"] is False
    # two days are over
    assert json.loads(command("get", "clicks@1:ctr", "--entity", "user_id=3", "--json")[1]) == {"ctr": None}


def test_what_is_deleted_is_not_looked_up_nor_pushed_any_more(command: Command) -> None:
    command("materialize", "clicks@1", *MARCH)
    command("push", "--until", "2026-03-03T20:00")
    status, out, _ = command("delete", "clicks@1", "user_id=3")
    assert status == 0
    assert (
        "clicks@1: the features of user_id=3 are deleted; what happened until now is not pushed again" in out
    )
    assert json.loads(command("push", "--until", "2026-03-03T20:00", "--json")[1])[0]["taken"] == 0
    look = ("get", "clicks@1:ctr", "--at", "2026-03-03T20:00", "--json", "--entity")
    assert json.loads(command(*look, "user_id=3")[1]) == {"ctr": None}
    assert json.loads(command(*look, "user_id=4")[1])["ctr"] is not None
    again = {"view": "clicks@1", "entity": {"user_id": 3}, "deleted": False}
    assert json.loads(command("delete", "clicks@1", "user_id=3", "--json")[1]) == again


def test_a_spec_with_a_feature_that_does_not_exist_is_refused_before_anything_runs(
    command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = yaml.safe_load((CHECKOUT / "sweeps" / "clicks.yaml").read_text())
    assert main(["check", Shell(tmp_path).spec(spec)]) == 0
    spec["dataset"]["features"] = ["clicks@1:rate"]
    assert main(["check", Shell(tmp_path).spec(spec)]) == 1
    assert "feature 'clicks@1:rate' is not accepted: clicks@1 has no such feature" in capsys.readouterr().err


@pytest.mark.slow
def test_the_examples_commands_end_with_a_model_that_names_its_features(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert (
        shell.call("features", "materialize", "clicks@1", "--from", "2026-03-01", "--to", "2026-03-15")[0]
        == 0
    )
    status, out, err = shell.call("sweep", "sweeps/clicks.yaml")
    assert status == 0, out + err
    (model,) = shell.data("models", "list")["models"]
    assert (model["stage"], model["features"]) == ("champion", ["clicks@1:ctr", "clicks@1:night"])
    assert model["metrics"]["accuracy"] > 0.66  # 0.64 of the visits end without an order
    (view,) = shell.data("features", "list")
    assert (view["sweeps"], view["models"]) == ([model["sweep"]], ["clicks 1.0.0"])
    backend = shell.backend
    now = "2026-03-15T00:00:00+00:00"
    manifest = manifest_of_winner(backend.store, load_report(backend.store, backend.catalog, model["sweep"]))
    assert manifest.features == model["features"]
    assert shell.data("features", "push", "--until", now)[0]["entities"] == clicks.USERS
    snapshot = Dataset(backend.store, "ctr", model["snapshot"]).read(
        columns=["user_id", "visited_at", "ctr", "night"]
    )
    # nothing more was known of this user until midnight
    last = snapshot.sort_by("visited_at").slice(snapshot.num_rows - 1).to_pylist()[0]
    with OnlineFeatures(online_address(backend.store), manifest.features) as online:
        assert online.get(last, now=datetime.fromisoformat(now)) == {
            name: last[name] for name in ("ctr", "night")
        }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("materialize", "clicks@2"), "feature view 'clicks@2' is not accepted"),
        (("materialize", "clicks@1", "--to", "2026-03-03"), "--to needs --from"),
        (
            ("materialize", "clicks@1", "--from", "2026-03-03", "--to", "2026-03-01"),
            "it is before --from = 2026-03-03",
        ),
        (("push",), "clicks@1 has not been materialised"),
        (("get", "clicks@1:ctr", "--entity", "user_id=3"), "online.db"),
        (("delete", "clicks@1", "user_id=3"), "online.db"),
    ],
)
def test_what_cannot_be_done_is_refused_with_the_reason(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    status, _, err = command(*arguments)
    assert status == 1
    assert message in err
