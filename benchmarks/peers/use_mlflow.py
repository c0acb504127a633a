"""The work through MLflow's fluent API into a local SQLite file.

``asynchronous`` chooses its background logging.
"""

import sqlite3
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import mlflow

from benchmarks.peers.harness import Opened, main


def start(folder: Path, options: Mapping[str, Any]) -> Opened:
    asynchronous = bool(options.get("asynchronous"))
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.create_experiment("bench", artifact_location=(folder / "artifacts").as_uri())
    mlflow.set_experiment("bench")
    mlflow.start_run(log_system_metrics=False)
    mlflow.log_params({"lr": 0.1})

    def close() -> None:
        if asynchronous:
            mlflow.flush_async_logging()
        mlflow.end_run()

    return Opened(partial(mlflow.log_metrics, synchronous=not asynchronous), close, lambda: _count(folder))


def _count(folder: Path) -> int:
    with sqlite3.connect(folder / "mlflow.db") as database:
        return int(database.execute("SELECT count(*) FROM metrics").fetchone()[0])


if __name__ == "__main__":
    main("mlflow", start)
