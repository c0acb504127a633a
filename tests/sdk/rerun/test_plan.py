"""What a record says of its code is brought back, and what it lacks is named."""

import multiprocessing
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.errors import InvalidInput
from halving.records.run_record import SavedCheckpoint
from halving.rerun.execution import train_again, trial_request, variables
from halving.rerun.factors import world_size_of
from halving.rerun.plan import Plan, plan_of
from halving.run.rerun_request import how_begun
from tests.sdk.rerun.records import COMMIT, TRIAL, info


def test_what_of_the_code_is_not_in_the_record_is_named_one_by_one() -> None:
    later = {2: {"provenance": {"git": {"commit": "d" * 40}}}}
    left_out = {
        "left_out": [{"path": "data.bin", "bytes": 40_000_000}],
        "left_out_count": 3,
        "patch_redacted": 1,
    }
    plan = plan_of(info(left_out, later, ordinal=2), None)
    assert [(difference.factor, difference.name) for difference in plan.incomplete] == [
        ("code", "data.bin"),
        ("code", "2 more files"),
        ("code", "1 changed lines"),
        ("code", "the command"),
        ("code", "attempt 2"),
    ]
    assert (plan.ordinal, plan.seed, plan.deterministic, plan.arguments) == (
        2,
        3,
        True,
        ("train.py", "--token=…"),
    )


def with_arguments(*arguments: str, **more: Any) -> dict[str, Any]:
    git = {"commit": COMMIT, "dirty": False, "folder": "code"}
    return {"ordinal": 1, "provenance": {"git": git, "arguments": list(arguments), **more}}


@pytest.mark.parametrize(
    ("arguments", "outside"),
    [
        (["train.py", "/data"], None),
        (["-X", "dev", "../train.py"], None),
        (["checkout:code/train.py"], None),
        (["-m", "package", "/x.py"], None),
        (["-Wd", "/elsewhere/train.py"], "/elsewhere/train.py"),
        (["-u", "-W", "error", "../../train.py"], "../../train.py"),
    ],
)
def test_a_script_that_is_not_in_the_checkout_is_named_as_not_recorded(
    arguments: list[str], outside: str | None
) -> None:
    plan = plan_of(info({}, **with_arguments(*arguments)), None)
    assert [difference.name for difference in plan.incomplete] == ([outside] if outside else [])


@pytest.mark.parametrize(
    "record",
    [
        with_arguments("train.py", packages_from={"lib": "checkout:../lib"}),
        with_arguments("train.py", "--config=checkout:/etc/passwd"),
    ],
)
def test_a_path_that_leaves_the_checkout_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=r"the folder .* in its record is not within the checkout"):
        plan_of(info({}, **record), None)


def test_a_folder_that_the_code_does_not_have_is_named(store: Store, tmp_path: Path) -> None:
    plan = plan_of(info({"folder": "empty"}, ordinal=1), None)
    with pytest.raises(
        InvalidInput, match="the folder 'empty', in which run p/r was started, is not in its code"
    ):
        train_again(plan, store, "n", code=tmp_path, python=sys.executable, scratch=tmp_path)


def test_the_process_gets_the_recorded_set_variablesand_none_that_were_not_set(tmp_path: Path) -> None:
    plan = plan_of(info({"import_paths": ["."]}, ordinal=1), None)
    mine = {"PATH": "/bin", "OMP_NUM_THREADS": "8", "PYTHONHASHSEED": "5", "HALVING_URL": "https://elsewhere"}
    environment = variables(plan, tmp_path, mine)
    assert (environment["PATH"], environment["PYTHONHASHSEED"]) == ("/bin", "0")
    assert "OMP_NUM_THREADS" not in environment
    assert "HALVING_URL" not in environment
    assert environment["PYTHONPATH"].split(":")[0] == str(tmp_path)


def test_a_trial_is_trained_in_one_go_to_the_epoch_of_its_newest_checkpoint(store: Store) -> None:
    parent = {"trainable": "m:train", "sweep": "s-1", "trial": 7, "snapshot": "sha256:d", "dataset": "digits"}
    plan = plan_of(info({}, trial=TRIAL, parent=parent), SavedCheckpoint(9, 3, "sha256:e", {}))
    assert plan.incomplete == ()  # the command is the platform's
    request = trial_request(plan, store, "r-rerun-1")
    assert (request.epochs, request.threads, request.trainable) == (9, 2, "m:train")
    assert request.context["parent"] == {
        "trainable": "m:train",
        "snapshot": "sha256:d",
        "dataset": "digits",
        "rerun_of": "p/r",
    }
    assert (request.context["seed"], request.recorded["max_epochs"], request.context["attempt"]) == (3, 27, 1)


def test_attempts_with_other_numbers_of_processes_than_the_first_are_named() -> None:
    same = {"provenance": {"git": {"commit": COMMIT}}}
    starts = {
        2: {**same, "trial": {"resources": {"processes": 2}}},
        3: {**same, "trial": {"resources": {"processes": 8, "nodes": 2}}},
    }
    resized = info(
        {}, starts, trial={**TRIAL, "resources": {"processes": 2}}, parent={"trainable": "m:train"}
    )
    plan = plan_of(resized, SavedCheckpoint(9, 3, "sha256:e", {}))
    assert [str(difference) for difference in plan.incomplete] == [
        "hardware: processes of attempt 3 was 16, is 2, as of attempt 1"
    ]


def test_a_trial_from_before_there_were_gangs_was_one_process() -> None:
    assert world_size_of({"gpus": 8, "nodes": 1}) == 1


@pytest.mark.parametrize(
    ("set_variables", "said"),
    [
        ({"WORLD_SIZE": "4"}, "one of 4 processes"),
        ({"WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "7"}, "one of 1 processes that torchrun"),
    ],
)
def test_a_run_of_a_launchers_process_is_refused_by_its_name(
    monkeypatch: pytest.MonkeyPatch, set_variables: dict[str, str], said: str
) -> None:
    for name, value in set_variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(InvalidInput, match=f"run p/r cannot be trained again: it was begun in .*{said}"):
        plan_of(info({}, **how_begun(1)), None)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_run_of_a_process_that_multiprocessing_started_is_refused(method: str) -> None:
    with multiprocessing.get_context(method).Pool(1) as pool:
        begun = pool.apply(how_begun, (1,))
    with pytest.raises(
        InvalidInput, match="it was begun in one of the processes that multiprocessing started"
    ):
        plan_of(info({}, **begun), None)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({}, "does not say how it was started"),
        ({"trial": TRIAL}, "it has no checkpoint"),
        (
            {"trial": TRIAL, "provenance": {"git": None, "image": "registry/train:1"}},
            "it ran in the image registry/train:1, and its record does not say with which resources",
        ),
        ({"parent": {"imported": {"tool": "wandb"}}}, "it was imported from wandb"),
    ],
)
def test_a_run_without_what_a_rerun_needs_is_refused(record: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=f"run p/r cannot be trained again: .*{said}"):
        plan_of(info({}, **record), None)


def test_a_plan_says_in_the_new_record_which_factors_were_changed() -> None:
    plan: Plan = plan_of(info({}, ordinal=1), None)
    assert plan.parent_of_rerun == {"rerun_of": "p/r"}
    assert replace(plan, changed=("seed",)).parent_of_rerun == {"rerun_of": "p/r", "changed": ["seed"]}
