"""Filling an Optuna study with runs as trials, whose intermediate values are its one metric."""

import json
import random
import sys
from importlib.metadata import version
from typing import Any

import optuna


def fill(database: str, runs: int, points: int) -> dict[str, Any]:
    """Write noisy decaying losses; return the study's id."""
    source = random.Random(0)
    study = optuna.create_study(storage=f"sqlite:///{database}", study_name="bench")
    for _ in range(runs):
        values = {step: (0.1 + 2.3 / (1 + 0.001 * step)) * source.uniform(0.8, 1.2) for step in range(points)}
        study.add_trial(optuna.trial.create_trial(value=values[points - 1], intermediate_values=values))
    return {"study": study._study_id, "version": version("optuna-dashboard")}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(json.dumps(fill(arguments["data"], arguments["runs"], arguments["points"])), flush=True)
