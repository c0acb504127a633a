"""The factors in which two runs differ by their records, and the reruns that are planned for them."""

import math
from dataclasses import replace
from typing import Any

import pytest

from halving import Store
from halving.query.runs import read_run
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.rerun.experiment import (
    ALL,
    all_differences,
    last_value,
    plan_experiment,
    with_factors,
)
from halving.rerun.factors import differences, environment_differences
from tests.sdk.rerun.experiments import PLAN, TRIAL, recorded_in
from tests.sdk.run.runs import start

GPUS = ["NVIDIA A100, GPU-1, 550.54", "NVIDIA T4, GPU-2, 550.54"]
pytestmark = pytest.mark.usefixtures("no_git_settings")


def test_an_arm_trains_and_records_the_other_runs_data_settings_epochs_and_trainable() -> None:
    first = replace(
        PLAN, trial=TRIAL, trainable="m:old", parent={"trainable": "m:old", "snapshot": "1"}, epochs=3
    )
    changed = {
        "deterministic": True,
        "start_from": {"digest": "sha256:9"},
        "max_epochs": 27,
        "train_on": ["train", "extra"],
    }
    other = replace(
        PLAN,
        trial={**TRIAL, **changed, "dataset_digest": "sha256:2"},
        trainable="m:new",
        parent={"trainable": "m:new", "snapshot": "2"},
        epochs=9,
        deterministic=True,
    )
    settings, data, epochs, code = (
        with_factors(first, other, [factor]) for factor in ("settings", "data", "epochs", "code")
    )
    assert settings.deterministic
    assert settings.trial == {**TRIAL, "deterministic": True, "start_from": {"digest": "sha256:9"}}
    assert data.trial == {**TRIAL, "dataset_digest": "sha256:2", "train_on": ["train", "extra"]}
    assert data.parent == {"trainable": "m:old", "snapshot": "2"}
    assert (epochs.epochs, epochs.trial) == (9, {**TRIAL, "max_epochs": 27})
    assert (code.trainable, code.parent["trainable"], code.trial) == ("m:new", "m:new", TRIAL)


def test_data_epochs_and_settings_of_trials_are_arms_and_a_scripts_data_is_left_out(
    store: Store,
) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]
    first = replace(info, record={**info.record, "trial": TRIAL})
    trial = {
        **TRIAL,
        "train_on": ["train", "extra"],
        "start_from": {"digest": "sha256:9"},
        "dataset_digest": "sha256:2",
    }
    other = replace(info, record={**info.record, "trial": trial})
    plans = replace(PLAN, trial=TRIAL, epochs=3), replace(PLAN, trial=trial, epochs=9)
    experiment = plan_experiment((first, plans[0]), (other, plans[1]), "score", 2, build=False)
    assert [arm.name for arm in experiment.arms] == ["as it was", "data", "epochs", "settings", ALL]
    assert [arm.plan.epochs for arm in experiment.arms] == [3, 3, 9, 3, 9]
    assert experiment.arms[-1].plan.trial == trial
    on_other_data = replace(
        info, parent={"dataset": "x"}, record={**info.record, "parent": {"dataset": "x"}, "params": {"lr": 9}}
    )
    left_out = plan_experiment((info, PLAN), (on_other_data, PLAN), "score", 2, build=False).left_out
    assert left_out == {"data": "a script reads its data itself"}


@pytest.mark.parametrize(
    ("factor", "name", "change"),
    [
        ("arguments", "command", {"provenance": {"arguments": ["train.py", "--wide"]}}),
        ("data", "train_on", {"trial": {**TRIAL, "train_on": ["train", "extra"]}}),
        ("epochs", "max_epochs", {"trial": {**TRIAL, "max_epochs": 27}}),
        ("settings", "start_from", {"trial": {**TRIAL, "start_from": {"digest": "sha256:9"}}}),
        (
            "settings",
            "objectives",
            {"trial": {**TRIAL, "objectives": [{**TRIAL["objectives"][0], "maximize": False}]}},
        ),
        (
            "packages",
            "lib",
            {"provenance": {"packages": {"Lib": "1.0"}, "packages_from": {"Lib": "git+https://x/lib@bbb"}}},
        ),
        ("packages", "the CUDA of PyTorch", {"provenance": {"cuda": "13.0"}}),
        (
            "hardware",
            "GPUs",
            {"provenance": {"hardware": {"gpus": GPUS, "visible_gpus": {"CUDA_VISIBLE_DEVICES": "1"}}}},
        ),
    ],
)
def test_every_part_of_a_record_that_may_change_a_metric_is_compared(
    store: Store, factor: str, name: str, change: dict[str, Any]
) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]
    provenance = {
        "arguments": ["train.py"],
        "packages": {"Lib": "1.0"},
        "cuda": "12.8",
        "packages_from": {"Lib": "git+https://x/lib@aaa"},
        "hardware": {"gpus": GPUS, "visible_gpus": {"CUDA_VISIBLE_DEVICES": "0"}},
    }
    record = {**info.record, "provenance": provenance, **({"trial": TRIAL} if "trial" in change else {})}
    changed = {**record, **change, "provenance": {**provenance, **change.get("provenance", {})}}
    (difference,) = differences(replace(info, record=record), replace(info, record=changed))
    assert (difference.factor, difference.name) == (factor, name)


def test_what_an_earlier_version_did_not_record_is_no_difference(store: Store) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]
    older, newer = (
        replace(info, record={**info.record, "provenance": provenance})
        for provenance in ({}, {"cuda": "13.0"})
    )
    assert differences(older, newer) == differences(newer, older) == []
    older = replace(
        older, record={**older.record, "determinism": {**info.record["determinism"], "torch.cuda": "12.8"}}
    )
    assert [str(each) for each in differences(older, newer)] == [
        "packages: the CUDA of PyTorch was 12.8, is 13.0"
    ]


def test_how_far_two_trials_were_trained_is_a_factor(store: Store) -> None:
    infos = recorded_in(store, 0.0, 1.0)
    by_factor = all_differences(*infos, (3, 9))
    assert list(by_factor) == ["params", "epochs", "seed"]
    assert str(by_factor["epochs"][0]) == "epochs: trained for was 3, is 9"


def test_packages_of_a_folder_outside_the_checkout_are_named_as_not_recorded() -> None:
    packages = {"lib": "1", "sdk": "2", "halving": "3"}
    origins = {
        "lib": "file:///home/ada/lib",
        "sdk": "checkout:sdk",
        "halving": "file:///home/ada/halving/sdk",
    }
    (difference,) = environment_differences(
        {"packages": packages, "packages_from": origins}, {"packages": packages}
    )
    assert str(difference) == "packages: lib was from file:///home/ada/lib, which is not recorded, is 1"


def test_a_trials_values_are_those_of_the_newest_checkpoint_where_its_rerun_ends(
    store: Store,
) -> None:
    with start(store, recorded={"trial": TRIAL}) as run:
        run.log({"score": 1.0, "other": 5.0}, step=1)
        run.log({"score": math.nan}, step=2)
    RunRecords(store, "p", "r").add_checkpoint(SavedCheckpoint(1, 1, f"sha256:{'1' * 64}", {"score": 1.0}))
    info = read_run(store, "p", "r")
    assert (last_value(store, info, "score"), last_value(store, info, "other")) == (1.0, 5.0)


def test_another_gpu_of_the_same_kind_and_another_host_are_the_same_hardware(store: Store) -> None:
    info = recorded_in(store, 0.0, 1.0)[0]

    def on(gpu: str, host: str) -> Any:
        return replace(
            info, record={**info.record, "provenance": {"hardware": {"cpus": 2, "gpus": [gpu], "host": host}}}
        )

    first = on("NVIDIA A100, GPU-1, 550.54", "here")
    assert differences(first, on("NVIDIA A100, GPU-2, 550.54", "there")) == []
    (driver,) = differences(first, on("NVIDIA A100, GPU-1, 560.1", "here"))
    assert str(driver) == "hardware: GPUs was NVIDIA A100, driver 550.54, is NVIDIA A100, driver 560.1"
