"""The final training in the one job, and what command, Dagster, report and registry show of it."""

from pathlib import Path

import dagster as dg
import pytest
import yaml

from halving.records.run_record import RunRecords
from tests.backends import CHECKOUT
from tests.commands.shell import Shell


@pytest.mark.slow
def test_digits_have_a_final_training_whose_median_seed_is_the_champion(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)
    spec = yaml.safe_load((CHECKOUT / "sweeps" / "digits.yaml").read_text())
    spec |= {
        "strategy": {"asha": {"sampler": "random", "min_budget": 1, "max_budget": 3, "reduction_factor": 3}},
        "max_trials": 3,
        "final": {"seeds": 3, "epochs": 4},
    }
    status, out, err = shell.call("sweep", shell.spec(spec))
    assert status == 0, out + err
    for said in (
        "Final training: 3 of 3 seeds complete",
        ", the median",
        "mean ± standard deviation: accuracy ",
    ):
        assert said in out

    board = shell.data("leaderboard")
    sweep = board["sweep"]
    finals = board["final"]
    scores = board["final_scores"]
    assert [(trial["key"], trial["status"], trial["epochs"]) for trial in finals] == [
        (f"{sweep}.{number:04d}", "completed", 4) for number in (3, 4, 5)
    ]
    assert {standing["trial"] for standing in board["standings"]} == {0, 1, 2}
    (model,) = shell.data("models", "list")["models"]
    median = next(trial for trial in finals if trial["key"] == model["run"])
    assert (model["stage"], model["checkpoint"], model["run"]) == (
        "champion",
        median["checkpoint"],
        scores["promotable"],
    )
    accuracies = sorted(seed["metrics"]["accuracy"] for seed in scores["seeds"])
    assert model["metrics"]["accuracy"] == accuracies[1]
    assert scores["mean"]["accuracy"] == pytest.approx(sum(accuracies) / 3)

    store = shell.backend.store
    records = [RunRecords(store, "digits", trial["key"]).read() for trial in finals]
    winner = board["standings"][0]
    assert all(record["params"] == winner["params"] for record in records)
    assert len({record["seed"] for record in records}) == 3
    assert len({trial["checkpoint"] for trial in finals}) == 3
    with dg.DagsterInstance.from_config(shell.environment["DAGSTER_HOME"]) as instance:
        assert {f"{sweep}.{number:04d}" for number in range(6)} == set(
            instance.get_dynamic_partitions("trials")
        )
        logged = instance.fetch_materializations(dg.AssetKey("trial"), limit=100).records
        of_finals = {
            str(record.partition_key): record.asset_materialization.metadata
            for record in logged
            if record.asset_materialization and "final_seed" in record.asset_materialization.metadata
        }
    assert set(of_finals) == {trial["key"] for trial in finals}
    assert {metadata["trained_on"].value for metadata in of_finals.values()} == {"train, validation"}
