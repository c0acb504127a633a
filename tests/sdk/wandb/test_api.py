"""``wandb.Api`` on a store: what was logged is what is read, and nothing can be changed."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import halving
from halving import Store
from halving.wandb.errors import CommError, Error, NotSupported, UsageError


@pytest.fixture
def filled(wandb: ModuleType, store: Store, tmp_path: Path) -> ModuleType:
    """Three runs of a project: two finished, one failed."""
    for number, name in enumerate(("first", "second", "third")):
        run = wandb.init(
            project="nets",
            id=name,
            name=f"fox-{number}",
            tags=["even"] if number % 2 == 0 else None,
            group="foxes",
            config={"lr": 0.1 / (number + 1), "opt": {"name": "adam"}},
        )
        for step in range(4):
            run.log({"loss": number + 1 / (step + 1), "val": {"acc": step / 4}})
        run.summary["best"] = number
        run.finish(int(number == 2))
    return wandb


@pytest.mark.parametrize("path", ["team/nets/second", "nets/second", "/team/nets/runs/second"])
def test_a_run_is_what_was_recorded_of_it(filled: ModuleType, path: str) -> None:
    run = filled.Api().run(path)
    assert (run.id, run.name, run.project, run.state) == ("second", "fox-1", "nets", "finished")
    assert run.config == {"lr": 0.05, "opt": {"name": "adam"}}
    assert (run.group, run.tags, run.job_type) == ("foxes", [], None)
    assert run.summary["loss"] == 1.25
    assert run.summary["val/acc"] == run.summary["val"]["acc"] == 0.75
    assert run.summary["best"] == 1
    assert run.summary["_runtime"] >= 0
    assert run.path == ["team" if "team" in path else "", "nets", "second"]
    assert run.created_at.endswith("Z")
    with pytest.raises(KeyError):
        run.summary["missing"]


def test_history_has_a_row_for_each_step_with_all_that_was_logged(filled: ModuleType) -> None:
    run = filled.Api().run("nets/first")
    rows = run.history(pandas=False)
    assert [row["_step"] for row in rows] == [0, 1, 2, 3]
    assert [row["loss"] for row in rows] == [1, 0.5, 1 / 3, 0.25]
    assert [row["val/acc"] for row in rows] == [0, 0.25, 0.5, 0.75]
    assert all(0 <= row["_runtime"] < 600 and row["_timestamp"] > 1.7e9 for row in rows)
    table = run.history(keys=["loss"])
    assert table["loss"].tolist() == [1, 0.5, 1 / 3, 0.25]
    assert list(table.columns) == ["_step", "loss"]
    assert run.lastHistoryStep == 3


def test_history_with_keys_has_only_rows_with_all_of_them(wandb: ModuleType) -> None:
    run = wandb.init(project="nets", id="gaps")
    for step in range(6):
        values = {"loss": step, "epoch": -step}
        if step % 2:
            values["acc"] = step / 10
        run.log(values)
    run.finish()
    read = wandb.Api().run("nets/gaps")
    assert [row["_step"] for row in read.scan_history(keys=["loss", "acc"])] == [1, 3, 5]
    assert [row["_step"] for row in read.scan_history(min_step=1, max_step=3)] == [1, 2]
    by_epoch = read.history(keys=["loss"], x_axis="epoch", pandas=False)
    assert by_epoch[0] == {"epoch": -5, "loss": 5}
    assert [row["_step"] for row in read.history(samples=3, pandas=False)] == [0, 2, 5]
    assert read.history(keys=["none"], pandas=False) == []


def test_runs_are_chosen_by_a_filter_and_come_in_the_order_that_is_asked_for(filled: ModuleType) -> None:
    api = filled.Api()
    assert [run.id for run in api.runs("team/nets")] == ["first", "second", "third"]
    assert [run.id for run in api.runs("nets", order="-summary_metrics.loss")] == ["third", "second", "first"]
    chosen = api.runs("nets", {"$or": [{"state": "failed"}, {"config.lr": {"$gt": 0.09}}]})
    assert [run.name for run in chosen] == ["fox-0", "fox-2"]
    assert (len(chosen), chosen[0].id, [run.id for run in chosen[1:]]) == (2, "first", ["third"])
    assert [run.id for run in api.runs("nets", {"tags": "even", "group": "foxes"})] == ["first", "third"]
    rows = chosen.histories(keys=["loss"])
    assert [(row["run_id"], row["_step"]) for row in rows[3:5]] == [("first", 3), ("third", 0)]


def test_runs_that_are_not_active_are_left_out_and_other_tools_runs_are_there(
    filled: ModuleType, store: Store
) -> None:
    run = halving.init("nets", {"lr": 1}, store.root, id="plain", system_metrics=None)
    run.log({"loss": 9.0}, step=7)
    run.finish()
    read = filled.Api().run("nets/plain")
    assert (read.name, read.config, read.summary["loss"]) == ("plain", {"lr": 1}, 9.0)
    assert [row["_step"] for row in read.scan_history()] == [7]
    assert [project.name for project in filled.Api().projects()] == ["nets"]


def test_a_project_of_the_environment_need_not_be_named(
    filled: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "nets")
    monkeypatch.setenv("WANDB_ENTITY", "team")
    assert filled.Api().run("second").path == ["team", "nets", "second"]
    assert len(filled.Api().runs()) == 3


def test_the_machines_metrics_are_a_stream_of_their_own(store: Store, wandb: ModuleType) -> None:
    run = halving.init("nets", {}, store.root, id="machine", system_metrics=None)
    run.log({"system/cpu": 50.0, "loss": 1.0}, step=3)
    run.finish()
    read = wandb.Api().run("nets/machine")
    assert read.system_metrics == {"system/cpu": 50.0}
    assert "system/cpu" not in read.summary
    (row,) = read.history(stream="system", pandas=False)
    assert row["system/cpu"] == 50.0
    assert "loss" not in row


def test_a_file_of_a_run_is_downloaded_once_and_never_out_of_its_folder(
    store: Store, wandb: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    run = halving.init("nets", {}, store.root, id="files", system_metrics=None)
    run.log_artifact(path, "texts/notes.txt")
    run.finish()
    read = wandb.Api().run("nets/files")
    (file,) = read.files()
    assert (file.name, file.size) == ("texts/notes.txt", 5)
    with file.download(tmp_path / "there") as opened:
        assert opened.read() == "hello"
    assert (tmp_path / "there" / "texts" / "notes.txt").read_text() == "hello"
    with pytest.raises(ValueError, match="replace=True"):
        read.file("texts/notes.txt").download(tmp_path / "there")
    file.download(tmp_path / "there", exist_ok=True).close()
    file.download(tmp_path / "there", replace=True).close()
    with pytest.raises(ValueError, match=r"file 'other' is not there.*texts/notes\.txt"):
        read.file("other")
    file._record = {**file._record, "name": "../outside"}
    with pytest.raises(CommError, match="leads out"):
        file.download(tmp_path / "there")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda run: run.update(), r"run\.update\(\) is not there"),
        (lambda run: run.delete(), r"halving runs delete nets/first"),
        (lambda run: run.summary.update({"a": 1}), r"summary\.update\(\) is not there"),
    ],
)
def test_what_would_change_a_run_is_refused(filled: ModuleType, call: Any, message: str) -> None:
    with pytest.raises(NotSupported, match=message):
        call(filled.Api().run("nets/first"))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda api: api.run("nets/missing"), CommError, "Could not find run"),
        (lambda api: api.run("a/b/c/d"), ValueError, "give entity/project/id"),
        (lambda api: api.run("first"), ValueError, "set WANDB_PROJECT"),
        (lambda api: list(api.runs("missing")), ValueError, "Could not find project missing"),
        (lambda api: api.runs("nets", {"user": "x"}), UsageError, "field 'user' has no equal"),
        (lambda api: api.runs("nets", order="-loss"), UsageError, "field 'loss' has no equal"),
        (lambda api: api.run("nets/first").history(samples=0), UsageError, "samples = 0"),
        (lambda api: api.run("nets/first").history(keys="loss"), UsageError, "keys = 'loss'"),
        (lambda api: api.create_project("x"), Error, r"wandb\.Api\(\)\.create_project is not there"),
    ],
)
def test_a_wrong_question_is_one_clear_error(filled: ModuleType, call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call(filled.Api())


def test_the_api_is_the_same_by_w_and_bs_paths(filled: ModuleType) -> None:
    from halving.wandb.apis.public import Api, Run

    assert Api is filled.Api
    assert isinstance(Api().run("nets/first"), Run)
