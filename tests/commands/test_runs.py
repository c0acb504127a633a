"""``halving runs tag``, ``archive``, ``delete`` and ``restore``, beside the list."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import halving
from halving.cli.main import main
from halving.errors import ExtraMissing
from halving.run import lifecycle
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import rename_project, set_project
from tests.indexed_runs import paused_trials
from tests.ports import free_port


@pytest.fixture
def runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, Any]]:
    """The command's status and JSON, on a store with the runs a and b."""
    for run in "ab":
        halving.init("digits", {}, tmp_path, id=run, system_metrics=None).finish()

    def call(*arguments: str) -> tuple[int, Any]:
        status = main(["runs", *arguments, "--root", str(tmp_path), "--json"])
        said = capsys.readouterr()
        return status, json.loads(said.out) if said.out else said.err

    return call


def test_runs_are_changed_by_words_behind_runs_and_listed_without_them(
    runs: Callable[..., tuple[int, Any]],
) -> None:
    listed = lambda *arguments: [row["run"] for row in runs(*arguments)[1]["runs"]]  # noqa: E731
    assert runs("tag", "a", "team=vision", "wip=1") == (
        0,
        {"project": "digits", "run": "a", "tags": {"team": "vision", "wip": "1"}},
    )
    assert runs("tag", "digits/a", "wip=")[1]["tags"] == {"team": "vision"}
    assert listed("tags.team = vision") == ["a"]
    status, said = runs("delete", "a")
    assert (status, said["runs"]) == (
        0,
        [{"project": "digits", "run": "a", "lifecycle": "deleted", "changed": True, "error": None}],
    )
    assert listed() == ["b"]
    assert listed("lifecycle = deleted") == ["a"]
    assert runs("archive", "a", "b")[0] == 0
    assert listed() == []
    assert runs("restore", "a", "b")[0] == 0
    assert runs("restore", "a")[1]["runs"][0]["changed"] is False
    assert sorted(listed()) == ["a", "b"]


def test_a_project_that_was_renamed_is_meant_by_each_of_its_names(
    runs: Callable[..., tuple[int, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HALVING_CATALOG", raising=False)
    listed = lambda *arguments: sorted(row["run"] for row in runs(*arguments)[1]["runs"])  # noqa: E731
    assert listed("project = numbers") == []
    assert not (tmp_path / "catalog.db").exists(), "whoever only asks makes none"
    backend = Backend(root=str(tmp_path))
    set_project(backend.catalog, "digits", weight=2)
    rename_project(backend.catalog, "digits", "numbers")
    halving.init("letters", {}, tmp_path, id="c", system_metrics=None).finish()
    assert (
        listed("project = numbers")
        == listed("project = digits")
        == listed("project in (numbers, x)")
        == ["a", "b"]
    )
    assert listed("project != numbers") == listed("not project = digits") == ["c"]
    assert listed("project = numbers and run = b or project = letters") == ["b", "c"]


def test_a_notebook_changes_runs_as_the_commands_do(
    runs: Callable[..., tuple[int, Any]], tmp_path: Path
) -> None:
    listed = lambda *arguments: [row["run"] for row in runs(*arguments)[1]["runs"]]  # noqa: E731
    assert halving.tag_run("a", {"team": "vision", "wip": "1"}, root=tmp_path) == {
        "team": "vision",
        "wip": "1",
    }
    assert halving.tag_run("digits/a", {"wip": None}, root=halving.Store(tmp_path)) == {"team": "vision"}
    assert listed("tags.team = vision") == ["a"]
    assert halving.delete_run("a", root=tmp_path) is True
    assert halving.delete_run("a", root=tmp_path) is False
    assert halving.archive_run("b", root=tmp_path) is True
    assert (listed(), listed("lifecycle = deleted")) == ([], ["a"])
    assert all(halving.restore_run(run, root=tmp_path) for run in "ab")
    assert sorted(listed()) == ["a", "b"]
    with (
        halving.init("digits", {}, tmp_path, id="c", system_metrics=None),
        pytest.raises(halving.InvalidInput, match="it is running"),
    ):
        halving.delete_run("c", root=tmp_path)
    with pytest.raises(halving.NotFound, match="no run 'nobody'"):
        halving.restore_run("nobody", root=tmp_path)
    with pytest.raises(halving.NotFound):
        halving.tag_run("a", {"team": "vision"}, root=tmp_path / "typo")
    assert not (tmp_path / "typo").exists(), "nothing is made where there is no store"
    refused: list[tuple[dict[Any, Any], str]] = [
        ({"epochs": 3}, "its value is 3; give a text"),
        ({3: "a"}, "its name is 3; give a text"),
    ]
    for tags, said in refused:
        with pytest.raises(halving.InvalidInput, match=said):
            halving.tag_run("a", tags, root=tmp_path)
    with pytest.raises(halving.InvalidInput, match="give a root or the url of a server, not both"):
        halving.delete_run("a", root=halving.Store(tmp_path), url="http://127.0.0.1:1")


def test_where_the_application_is_not_installed_the_sdk_says_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "entry_points", lambda **_: [])
    with pytest.raises(
        ExtraMissing, match="belongs to the application: install it here, or give url=… of a server"
    ):
        halving.delete_run("a", root=tmp_path)


def test_what_is_not_understood_is_said_before_anything_is_done(runs: Callable[..., tuple[int, Any]]) -> None:
    assert (
        runs("tag", "a", "team")[1]
        == "halving runs: tag 'team' is not accepted: give KEY=VALUE, or KEY= to take it away\n"
    )
    status, said = runs("delete", "a", "nobody")
    assert (status, "no run 'nobody'" in said) == (1, True)
    assert len(runs()[1]["runs"]) == 2


def test_a_deleted_run_says_until_when_it_can_be_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    halving.init("digits", {}, tmp_path, id="a", system_metrics=None).finish()
    assert main(["runs", "delete", "a", "--root", str(tmp_path)]) == 0
    assert "digits/a is deleted: halving runs restore takes it back until 2" in capsys.readouterr().out
    assert main(["show", "a", "--root", str(tmp_path)]) == 0
    assert "it is deleted since" in capsys.readouterr().out


def test_a_trial_that_never_goes_on_is_stopped_in_the_list_in_filters_and_alone(
    backend: Backend, small_spec: Callable[..., SweepSpec], capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = paused_trials(backend, small_spec(), 1)

    def run_json(*arguments: str) -> Any:
        assert main([*arguments, "--root", backend.store.root, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert [run["run"] for run in run_json("runs", "status = paused")["runs"]] == ["r0"]
    with backend.catalog.write() as session:
        session.get_one(SweepRow, sweep).status = "finished"
    assert run_json("runs", "status = paused")["runs"] == []
    assert [run["status"] for run in run_json("runs", "status = stopped")["runs"]] == ["stopped"]
    run_data = run_json("show", "r0")
    assert (run_data["status"], run_data["attempts"][-1]["status"]) == ("stopped", "stopped")


def test_runs_are_shown_by_their_records_while_the_catalog_is_away(
    backend: Backend,
    small_spec: Callable[..., SweepSpec],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused_trials(backend, small_spec(), 1)
    monkeypatch.setenv("HALVING_CATALOG", f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/none")
    for command in (["runs", "status = paused"], ["show", "r0"]):
        assert main([*command, "--root", backend.store.root]) == 0
        said = capsys.readouterr()
        assert "r0" in said.out
        assert (
            said.err
            == "note: the catalog is away, so that a trial which its sweep stopped is shown as paused\n"
        )
