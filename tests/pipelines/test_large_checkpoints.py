"""A sweep whose checkpoints are sharded: whoever reads a checkpoint reads such ones."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from halving import load_model
from halving.records.run_record import RunRecords
from tests.backends import CHECKOUT
from tests.commands.shell import Shell


@pytest.mark.slow
def test_a_sharded_winner_is_judged_promoted_exported_loaded_and_rerun(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path)
    spec: dict[str, Any] = yaml.safe_load((CHECKOUT / "sweeps" / "digits.yaml").read_text())
    spec |= {"trainable": "tests.large_trial:train", "max_trials": 4}
    spec["strategy"]["asha"]["max_budget"] = 9
    status, out, err = shell.call("sweep", shell.spec(spec))
    assert status == 0, out + err

    (model,) = shell.data("models", "list")["models"]
    assert model["stage"] == "champion"
    store = shell.backend.store
    winner = f"{model['sweep']}.{model['trial']:04d}"
    saved = RunRecords(store, "digits", winner).checkpoints()
    assert len(saved) >= 2
    assert all(each.sharded for each in saved)

    shell.data("models", "export", "digits@champion", str(tmp_path / "out"))
    assert len(list(load_model("digits@champion", store.root).predict({"pixels": [[0.0] * 64]}))) == 1
    status, out, err = shell.call("rerun", winner, "--json")
    assert status == 0, out + err
    assert json.loads(out)["weights"]["equal"]
