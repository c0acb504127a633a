"""Runs that are continued by their id."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from halving import Store
from halving.records.amendments import amend
from tests.sdk.wandb.recorded import curves_of, recorded_run


def _first(wandb: ModuleType) -> str:
    run = wandb.init(project="p", id="r", config={"lr": 1}, name="first", tags=["a"])
    run.config.update({"depth": 2})
    for value in range(3):
        wandb.log({"loss": value})
    wandb.log({"text": "last"})
    run.finish()
    return str(run.id)


@pytest.mark.parametrize("resume", ["allow", "must"])
def test_a_resumed_run_goes_on_behind_its_last_step(wandb: ModuleType, store: Store, resume: str) -> None:
    _first(wandb)
    run = wandb.init(project="p", id="r", resume=resume)
    assert run.resumed
    assert run.step == run.starting_step == 3
    assert dict(run.config) == {"depth": 2, "lr": 1}
    assert (run.name, run.tags) == ("first", ("a",))
    run.log({"loss": 9})
    run.log({"loss": 0}, step=1)
    run.finish()
    assert curves_of(store, run) == {"loss": [(0, 0.0), (1, 1.0), (2, 2.0), (3, 9.0)]}
    info = recorded_run(store, run)
    assert [attempt.number for attempt in info.attempts] == [1, 2]
    assert info.params == {"depth": 2, "lr": 1}


def test_a_resumed_run_takes_new_values_of_its_config(wandb: ModuleType, store: Store) -> None:
    _first(wandb)
    run = wandb.init(project="p", id="r", resume="allow", config={"lr": 5, "width": 6}, tags=["b"])
    run.finish()
    info = recorded_run(store, run)
    assert info.params == {"depth": 2, "lr": 5, "width": 6}
    assert info.tags == {"b": "true", "name": "first"}


def test_a_resumed_run_goes_on_with_its_summary(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p", id="r")
    run.define_metric("loss", summary="min,max,first")
    for value in (2.0, 1.0, 3.0):
        run.log({"loss": value})
    run.summary["best"] = 7
    run.finish()
    again = wandb.init(project="p", id="r", resume="must")
    assert again.summary["best"] == 7
    again.define_metric("loss", summary="min,max,first")
    again.log({"loss": 2.5})
    assert again.summary["loss"]._as_dict() == {"min": 1.0, "max": 3.0, "first": 2.0}
    again.finish()
    assert recorded_run(store, again).summary == {
        "best": 7.0,
        "loss": 2.5,
        "loss/first": 2.0,
        "loss/max": 3.0,
        "loss/min": 1.0,
    }


def test_tags_that_people_added_stay(wandb: ModuleType, store: Store) -> None:
    run = wandb.init(project="p", id="r", tags=["a", "b"])
    run._changes.flush()

    def tag(before: dict[str, Any]) -> dict[str, Any]:
        return {**before, "tags": {"a": "true", "b": "true", "paper": "figure 3"}}

    amend(store, "runs/project=p/r", tag)
    run.tags = ("a", "c")
    run.finish()
    assert recorded_run(store, run).tags == {"a": "true", "c": "true", "paper": "figure 3"}
    again = wandb.init(project="p", id="r", resume="must")
    assert again.tags == ("a", "c")
    again.config.lr = 1
    again.finish()
    assert recorded_run(store, run).tags == {"a": "true", "c": "true", "paper": "figure 3"}
    last = wandb.init(project="p", id="r", tags=["d"])
    last.finish()
    assert recorded_run(store, run).tags == {"d": "true", "paper": "figure 3"}


def test_an_id_that_is_new_begins_at_zero(wandb: ModuleType) -> None:
    run = wandb.init(project="p", id="other", resume="allow")
    assert not run.resumed
    assert run.step == 0


def test_without_resume_the_steps_begin_again_in_another_attempt(wandb: ModuleType, store: Store) -> None:
    _first(wandb)
    run = wandb.init(project="p", id="r", config={"lr": 7})
    assert not run.resumed
    assert run.step == 0
    run.log({"loss": 7})
    run.finish()
    assert curves_of(store, run)["loss"] == [(0, 7.0), (1, 1.0), (2, 2.0)]
    assert recorded_run(store, run).params == {"lr": 7}


def test_must_needs_a_run_and_never_needs_none(wandb: ModuleType, store: Store) -> None:
    with pytest.raises(wandb.errors.UsageError, match="has never been initialized"):
        wandb.init(project="p", id="r", resume="must")
    _first(wandb)
    with pytest.raises(wandb.errors.UsageError, match="that already exists"):
        wandb.init(project="p", id="r", resume="never")
    assert len(recorded_run(store, wandb.init(project="p", id="r", resume="allow")).attempts) == 2


@pytest.mark.parametrize("resume", [True, "auto"])
def test_auto_continues_the_run_of_this_folder_until_one_ends_well(
    wandb: ModuleType, resume: bool | str
) -> None:
    first = wandb.init(project="p", resume=resume)
    first.log({"a": 1})
    first.finish(exit_code=1)
    assert json.loads(Path("wandb/wandb-resume.json").read_text()) == {"run_id": first.id}
    second = wandb.init(project="p", resume=resume)
    assert (second.id, second.resumed, second.step) == (first.id, True, 1)
    second.finish()
    third = wandb.init(project="p", resume=resume)
    assert third.id != first.id


def test_metrics_of_the_machine_do_not_count_as_steps(
    wandb: ModuleType, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = wandb.init(project="p", id="r")
    run.log({"a": 1})
    run._run.log({"system/cpu": 1.0}, step=500)
    run.finish()
    assert wandb.init(project="p", id="r", resume="must").step == 1


def test_two_processes_that_share_a_run_keep_each_others_params(wandb: ModuleType, store: Store) -> None:
    first = wandb.init(project="p", id="shared", config={"lr": 1})
    second = wandb.init(project="p", id="shared", resume="allow", reinit="create_new")
    second.config["depth"] = 2
    second.finish()
    first.config["width"] = 3
    first.finish()
    assert recorded_run(store, first).params == {"lr": 1, "depth": 2, "width": 3}
