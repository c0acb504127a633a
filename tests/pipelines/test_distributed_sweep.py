"""A sweep whose higher rungs have more ranks: to the report, the champion, its export and a rerun."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from sqlalchemy import select

import halving
from halving.checkpoints.restoring import saved_state
from halving.query.runs import read_run
from halving.records.run_record import RunRecords
from resources.analysis.trial_history import history_of
from resources.catalog import ModelVersionRow
from resources.evaluation.report import report_path
from tests.backends import CHECKOUT
from tests.commands.shell import Shell

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("distributed sweep")]

NAME = "convolutions-distributed"


def sweep(folder: Path, **fields: Any) -> Shell:
    """Run the example's own sweep, with some of it changed."""
    shell = Shell(folder)
    spec: dict[str, Any] = yaml.safe_load((CHECKOUT / "sweeps" / f"{NAME}.yaml").read_text())
    spec["space"]["shard"] = {"categorical": ["fsdp"]}
    status, out, err = shell.call("sweep", shell.spec(spec | fields))
    assert status == 0, out + err
    return shell


@pytest.fixture(scope="module")
def sweep_shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """A small sweep: the first rung by one process, the last by two."""
    asha = {"sampler": "random", "min_budget": 1, "max_budget": 3, "reduction_factor": 3}
    resources = {"processes": {1: 1, 3: 2}, "cpus": 2}
    return sweep(
        tmp_path_factory.mktemp("distributed"), strategy={"asha": asha}, max_trials=3, resources=resources
    )


@pytest.fixture(scope="module")
def version(sweep_shell: Shell) -> ModelVersionRow:
    with sweep_shell.backend.catalog.read() as session:
        (version,) = session.scalars(select(ModelVersionRow))
    return version


@pytest.fixture(scope="module")
def winner(sweep_shell: Shell) -> str:
    """The key of the winning trial."""
    return str(sweep_shell.data("leaderboard")["standings"][0]["key"])


def test_the_winner_runs_on_two_ranks_is_evaluated_from_its_shards_and_registered(
    sweep_shell: Shell, version: ModelVersionRow, winner: str
) -> None:
    run = read_run(sweep_shell.backend.store, NAME, winner)
    assert [start["trial"]["resources"]["processes"] for start in (run.record, *run.starts.values())] == [
        1,
        2,
    ]
    history = history_of(sweep_shell.backend.catalog, winner)
    assert [(result.epochs, result.attempt) for result in history.results] == [(1, 1), (3, 2)]
    assert (history.failures, history.preemptions) == (0, 0)
    checkpoints = RunRecords(sweep_shell.backend.store, NAME, winner).checkpoints()
    assert [(saved.epoch, saved.sharded) for saved in (checkpoints[0], checkpoints[-1])] == [
        (1, False),
        (3, True),
    ]
    assert version.checkpoint == checkpoints[-1].digest
    (model,) = sweep_shell.data("models", "list")["models"]
    assert (model["model"], model["stage"]) == (NAME, "champion")
    assert model["metrics"]["accuracy"] > 0.5, "of ten digits each has a tenth"
    assert sweep_shell.backend.store.read(report_path(version.sweep)).startswith(b"<!doctype html>")


def test_the_champion_is_loaded_and_exported_with_the_weights_of_two_ranks(
    sweep_shell: Shell, version: ModelVersionRow, tmp_path: Path
) -> None:
    assert (
        halving.resolve(f"{NAME}@champion", root=sweep_shell.backend.store.root).digest == version.checkpoint
    )
    status, out, err = sweep_shell.call("models", "export", f"{NAME}@champion", str(tmp_path / "out"))
    assert status == 0, out + err
    model = saved_state(sweep_shell.backend.store, version.checkpoint)["model"]
    exported = load_file(tmp_path / "out" / "weights.safetensors")
    assert {name for name in exported if name.startswith("model.")} == {f"model.{name}" for name in model}
    assert all(torch.equal(exported[f"model.{name}"], tensor) for name, tensor in model.items())
    assert set(json.loads((tmp_path / "out" / "predictions.json").read_text())) <= set("0123456789")


def test_a_rerun_on_one_rank_has_the_same_numbers_and_says_that_the_ranks_differ(
    sweep_shell: Shell, winner: str
) -> None:
    status, out, err = sweep_shell.call("rerun", winner, "--json")
    assert status == 1
    verdict = json.loads(out)
    assert verdict["verdict"] == "differs"
    assert [(factor["name"], factor["recorded"], factor["now"]) for factor in verdict["factors"]] == [
        ("processes of attempt 2", 2, "1, as of attempt 1")
    ], err
    runs = [read_run(sweep_shell.backend.store, NAME, run) for run in (winner, verdict["run"])]
    was, now = (run.summary["train/loss"] for run in runs)
    assert was == pytest.approx(now, abs=1e-6)


def test_a_winner_of_two_ranks_is_identical_when_it_is_trained_again(tmp_path: Path) -> None:
    shell = sweep(tmp_path, strategy={"random": {"budget": 1}}, max_trials=1)
    status, out, err = shell.call("rerun", shell.data("leaderboard")["standings"][0]["key"], "--json")
    verdict = json.loads(out)
    assert (status, verdict["verdict"], verdict["factors"]) == (0, "identical", []), err
    assert verdict["weights"]["equal"]
    rerun = read_run(shell.backend.store, NAME, verdict["run"])
    assert rerun.summary["val_accuracy"] > 0.3
