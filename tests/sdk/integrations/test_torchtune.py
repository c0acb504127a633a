"""torchtune with Halving's logger, as its recipes make one of their config."""

import os
import subprocess
from pathlib import Path

import pytest

from halving import Store
from tests.sdk.integrations.conftest import StoredRuns
from tests.sdk.wandb.both_ways import SDK
from tests.sdk.wandb.environments import frameworks_python

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wandb")]

RECIPE = """
import sys
import torch
from omegaconf import OmegaConf
from torchtune import config

recipe = OmegaConf.create('''
output_dir: out
optimizer: {lr: 0.1}
epochs: 2
metric_logger:
  _component_: halving.integrations.torchtune.HalvingLogger
  project: p
  id: tuned
  log_dir: ${output_dir}/logs
''')
logger = config.instantiate(recipe.metric_logger)
logger.log_config(recipe)
for step in range(5):
    logger.log_dict({"loss": torch.tensor(1 / (step + 1)), "lr": 0.1}, step=step + 1)
logger.log("memory", 3.5, step=6)
if "fails" in sys.argv:
    raise RuntimeError("the recipe failed")
logger.close()
"""


def run_recipe(store: Store, folder: Path, *arguments: str) -> int:
    done = subprocess.run(
        [str(frameworks_python()), "-c", RECIPE, *arguments],
        cwd=folder,
        env=dict(os.environ) | {"PYTHONPATH": SDK, "HALVING_ROOT": store.root},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "Traceback" not in done.stderr or arguments, done.stderr
    return done.returncode


def test_a_recipe_leaves_its_config_and_points_and_ends_finished(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    assert run_recipe(store, tmp_path) == 0
    params = stored_runs.params("tuned")
    assert (params["optimizer"], params["epochs"]) == ({"lr": 0.1}, 2)
    assert params["metric_logger"]["log_dir"] == "out/logs", "interpolations are resolved"
    points = stored_runs.points("tuned")
    assert {step: round(value, 3) for step, value in points["loss"].items()} == {
        1: 1.0,
        2: 0.5,
        3: 0.333,
        4: 0.25,
        5: 0.2,
    }
    assert points["memory"] == {6: 3.5}
    assert stored_runs.ends("tuned") == ["finished"]
    assert b"HalvingLogger" in stored_runs.artifacts("tuned")["torchtune_config.yaml"]


def test_a_recipe_that_fails_ends_failed_with_its_points(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    assert run_recipe(store, tmp_path, "fails") == 1
    assert stored_runs.points("tuned")["memory"] == {6: 3.5}
    assert stored_runs.ends("tuned") == ["failed"]
