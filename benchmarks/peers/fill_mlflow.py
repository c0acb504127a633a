"""Filling the SQLite file of an MLflow server with runs, many rows in one transaction."""

import json
import random
import sqlite3
import sys
from contextlib import closing
from typing import Any

import mlflow
from mlflow.tracking import MlflowClient


def fill(database: str, runs: int, metrics: int, points: int) -> dict[str, Any]:
    """Write noisy decaying losses; return the ids of the experiment and the runs."""
    mlflow.set_tracking_uri(f"sqlite:///{database}")
    client = MlflowClient()
    source = random.Random(0)
    experiment = client.create_experiment("bench")
    ids = [client.create_run(experiment, start_time=1_000_000).info.run_id for _ in range(runs)]
    with closing(sqlite3.connect(database)) as connection, connection:
        for run in ids:
            for metric in range(metrics):
                name = f"metric_{metric}"
                rows = [
                    (
                        name,
                        (0.1 + 2.3 / (1 + 0.001 * step)) * source.uniform(0.8, 1.2),
                        1_000_000 + step,
                        run,
                        step,
                        0,
                    )
                    for step in range(points)
                ]
                connection.executemany(
                    (
                        "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, "
                        "?, "
                        "?, ?, ?)"
                    ),
                    rows,
                )
                connection.execute(
                    (
                        "INSERT INTO latest_metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES "
                        "(?, "
                        "?, ?, ?, ?, ?)"
                    ),
                    rows[-1],
                )
    for run in ids:
        client.set_terminated(run)
    return {"experiment": experiment, "runs": ids, "version": mlflow.__version__}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    print(
        json.dumps(fill(arguments["data"], arguments["runs"], arguments["metrics"], arguments["points"])),
        flush=True,
    )
