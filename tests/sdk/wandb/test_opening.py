"""``wandb.init``: arguments, variables, several runs at a time, modes. Messages are those of W&B 0.31."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from halving import Store
from halving.query.runs import list_runs
from tests.sdk.wandb.recorded import recorded_run


def test_a_run_is_recorded_as_an_import_of_it_would_be(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(
        project="My runs",
        entity="team",
        name="first",
        notes="a try",
        tags=["big", "debug"],
        group="g",
        job_type="train",
        config={"lr": 0.1, "model": {"depth": 3}},
    )
    run.finish()
    info = recorded_run(store, run)
    assert run.project == info.project == "My-runs"
    assert info.params == {"lr": 0.1, "model": {"depth": 3}}
    assert info.tags == {
        "big": "true",
        "debug": "true",
        "name": "first",
        "notes": "a try",
        "group": "g",
        "job_type": "train",
        "entity": "team",
    }
    assert info.status == "finished"
    assert run.path == f"team/My-runs/{run.id}"
    assert (run.name, run.tags, run.group, run.job_type) == ("first", ("big", "debug"), "g", "train")


def test_variables_of_the_environment_count_below_arguments(
    wandb: ModuleType, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {
        "PROJECT": "theirs",
        "NAME": "named",
        "RUN_ID": "fixed",
        "RUN_GROUP": "g",
        "JOB_TYPE": "eval",
        "TAGS": "a,b",
        "NOTES": "n",
        "ENTITY": "team",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    run = wandb.init(name="argument")
    run.finish()
    assert (run.project, run.id, run.name, run.group) == ("theirs", "fixed", "argument", "g")
    assert recorded_run(store, run).tags == {
        "a": "true",
        "b": "true",
        "name": "argument",
        "group": "g",
        "job_type": "eval",
        "notes": "n",
        "entity": "team",
    }


def test_a_run_without_a_project_is_uncategorized(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(id="my run")
    run.finish()
    assert (run.project, run.id) == ("uncategorized", "my-run")
    assert recorded_run(store, run).run == "my-run"


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"resume": "bogus"}, ValueError, "resume = 'bogus' is not accepted: give allow, must, never, auto"),
        ({"mode": "bogus"}, ValueError, "mode = 'bogus' is not accepted"),
        ({"reinit": "bogus"}, ValueError, "reinit = 'bogus' is not accepted"),
        ({"settings": {"nope": 1}}, ValueError, "Settings.nope = 1 is not accepted"),
        ({"name": 3}, ValueError, "run_name = 3 is not accepted: give a text"),
        ({"tags": ["", ""]}, ValueError, "Tag at index 0 is empty."),
        ({"tags": ["x" * 70]}, ValueError, "is 70 characters. Tags must be between 1 and 64 characters"),
        ({"id": "a/b"}, RuntimeError, "Run ID cannot contain the characters: :;,#?/'"),
        ({"id": " "}, RuntimeError, "Run ID cannot start or end with whitespace"),
        ({"id": ""}, RuntimeError, "Run ID cannot be empty"),
        ({"project": "a/b"}, RuntimeError, "Invalid project name 'a/b': cannot contain characters"),
        ({"config": 3}, TypeError, "config must be a dict or have a __dict__ attribute."),
        ({"config": "/nope.yaml"}, RuntimeError, "config file /nope.yaml doesn't exist"),
        (
            {"resume_from": "r?_step=3"},
            NotImplementedError,
            "init(resume_from='r?_step=3') is not there",
        ),
        ({"fork_from": "r?_step=3"}, NotImplementedError, "wandb.init(fork_from='r?_step=3') is not there"),
        ({"sync_tensorboard": True}, NotImplementedError, "halving import tensorboard"),
        ({"monitor_gym": True}, NotImplementedError, "log videos with wandb.Video"),
        ({"mode": "shared"}, NotImplementedError, "with one group for all"),
    ],
)
def test_what_is_not_accepted_is_refused_before_anything_is_recorded(
    wandb: ModuleType, store: Store, arguments: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        wandb.init(**arguments)
    assert message in str(caught.value)
    assert wandb.run is None
    assert list_runs(store) == []


def test_a_refused_name_is_an_error_that_wandb_has(wandb: ModuleType) -> None:
    with pytest.raises(wandb.errors.UsageError):
        wandb.init(id="a/b")
    with pytest.raises(wandb.Error):
        wandb.init(fork_from="r?_step=3")


def test_a_second_init_returns_the_open_run(wandb: ModuleType, store: Store) -> None:
    first = wandb.init(project="p")
    assert wandb.init(project="q") is first
    assert wandb.run is first
    first.finish()
    assert wandb.run is None
    assert len(list_runs(store)) == 1


@pytest.mark.parametrize("reinit", [True, "finish_previous"])
def test_reinit_finishes_the_open_run(wandb: ModuleType, store: Store, reinit: Any) -> None:
    first = wandb.init(project="p")
    second = wandb.init(project="p", reinit=reinit)
    assert second is not first
    assert wandb.run is second
    assert recorded_run(store, first).status == "finished"


def test_create_new_leaves_the_current_run_as_it_is(wandb: ModuleType) -> None:
    first = wandb.init(project="p")
    second = wandb.init(project="p", reinit="create_new")
    assert wandb.run is first
    second.log({"a": 1})
    wandb.log({"b": 1})
    second.finish()
    assert wandb.run is first
    assert "a" not in first.summary
    with pytest.raises(wandb.Error, match="Cannot resume a run while another run is active"):
        wandb.init(id="q", resume="must")


def test_names_of_the_module_belong_to_the_current_run(wandb: ModuleType) -> None:
    before = {
        "wandb.log()": lambda: wandb.log({}),
        "wandb.config.x": lambda: wandb.config.x,
        "wandb.config['x']": lambda: wandb.config["x"],
        "wandb.summary['a']": lambda: wandb.summary["a"],
        "wandb.define_metric()": lambda: wandb.define_metric("a"),
        "wandb.config.update": lambda: wandb.config.update({}),
    }
    for name, call in before.items():
        with pytest.raises(wandb.Error) as caught:
            call()
        assert str(caught.value) == f"You must call wandb.init() before {name}"
    run = wandb.init(project="p", config={"x": 1})
    assert wandb.config.x == 1
    assert wandb.log.__self__ is run
    run.finish()
    with pytest.raises(wandb.Error, match=r"You must call wandb.init\(\) before wandb.log\(\)"):
        wandb.log({})


def test_a_finished_run_refuses_calls(wandb: ModuleType) -> None:
    run = wandb.init(project="p")
    run.finish()
    calls = {
        "log": lambda: run.log({"a": 1}),
        "define_metric": lambda: run.define_metric("x"),
        "alert": lambda: run.alert("a", "b"),
        "name": lambda: setattr(run, "name", "x"),
    }
    for name, call in calls.items():
        with pytest.raises(wandb.errors.UsageError) as caught:
            call()
        assert str(caught.value) == (
            f"Run ({run.id}) is finished. The call to `{name}` will be ignored."
            " Please make sure that you are using an active run."
        )
    run.finish()


@pytest.mark.parametrize("by", ["argument", "WANDB_MODE", "WANDB_DISABLED"])
def test_a_disabled_run_works_and_records_nothing(
    wandb: ModuleType, store: Store, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    arguments = {}
    if by == "argument":
        arguments = {"mode": "disabled"}
    elif by == "WANDB_MODE":
        monkeypatch.setenv(by, "disabled")
    else:
        monkeypatch.setenv(by, "true")
    run = wandb.init(config={"a": 1}, **arguments)
    assert wandb.run is run
    assert run.disabled
    run.log({"q": 1, "s": "text"})
    run.define_metric("q", summary="max")
    run.summary["k"] = 1
    run.config.update({"b": 2})
    run.alert("title", "text")
    assert (run.summary.get("q"), run.summary["k"], run.config.b) == (1, 1, 2)
    assert run.step == 0
    assert run.project == "dummy"
    assert run.name == f"dummy-{run.id}"
    run.finish()
    assert wandb.run is None
    assert list_runs(store) == []


@pytest.mark.parametrize("mode", ["online", "offline", "dryrun", "run"])
def test_every_other_mode_goes_to_the_store(wandb: ModuleType, store: Store, mode: str) -> None:
    with wandb.init(project="p", mode=mode) as run:
        run.log({"a": 1})
        assert run.offline == (mode in ("offline", "dryrun"))
    assert recorded_run(store, run).summary == {"a": 1.0}


def test_an_exception_in_the_block_ends_the_run_as_failed(wandb: ModuleType, store: Store) -> None:
    with pytest.raises(ZeroDivisionError), wandb.init(project="p") as run:
        1 / 0  # noqa: B018
    assert recorded_run(store, run).status == "failed"
    other = wandb.init(project="p")
    wandb.finish(exit_code=3)
    assert recorded_run(store, other).status == "failed"


def test_labels_that_change_are_recorded(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p", tags=["a"])
    run.name = "later"
    run.tags += ("b",)
    run.notes = "seen"
    run.tags += ("",)
    run.finish()
    assert recorded_run(store, run).tags == {"a": "true", "b": "true", "name": "later", "notes": "seen"}


@dataclass
class _Options:
    lr: float = 0.1
    depth: int = 2


@pytest.mark.parametrize("config", [{"lr": 0.1, "depth": 2}, argparse.Namespace(lr=0.1, depth=2), _Options()])
def test_configs_of_many_kinds_are_taken(wandb: ModuleType, store: Store, config: Any) -> None:
    run = wandb.init(project="p", config=config)
    run.finish()
    assert recorded_run(store, run).params == {"depth": 2, "lr": 0.1}


def test_config_files_are_read(wandb: ModuleType, store: Store) -> None:
    pytest.importorskip("yaml")
    Path("config-defaults.yaml").write_text("lr: {desc: rate, value: 0.5}\ndepth: 4\n")
    Path("own.yaml").write_text("depth: 5\n")
    run = wandb.init(project="p", config="own.yaml")
    run.finish()
    assert recorded_run(store, run).params == {"depth": 5, "lr": 0.5}


def test_names_of_a_config_can_be_left_out(wandb: ModuleType) -> None:
    run = wandb.init(config={"a": 1, "b": 2}, config_exclude_keys=["a"])
    assert dict(run.config) == {"b": 2}
    run.finish()
    with pytest.raises(wandb.errors.UsageError, match="Expected at most only one of exclude or include"):
        wandb.init(config={"a": 1}, config_include_keys=["a"], config_exclude_keys=["a"])


def test_a_tag_that_is_no_text_is_refused(wandb: ModuleType) -> None:
    with pytest.raises(ValueError, match="Tag at index 0 is 1"):
        wandb.init(project="p", tags=[1])


def test_a_wrong_sampling_interval_is_refused_by_its_name(
    wandb: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_X_STATS_SAMPLING_INTERVAL", "often")
    with pytest.raises(wandb.Error, match="x_stats_sampling_interval = 'often' is not accepted"):
        wandb.init(project="p")
