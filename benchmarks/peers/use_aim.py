"""The work through Aim into a local repository, with one ``track`` for each metric.

System metrics and terminal capture are off.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aim import Repo, Run

from benchmarks.peers.harness import NAMES, Opened, main


def start(folder: Path, options: Mapping[str, Any]) -> Opened:
    Repo.from_path(str(folder), init=True)
    run = Run(
        repo=str(folder), experiment="bench", system_tracking_interval=None, capture_terminal_logs=False
    )
    run["hparams"] = {"lr": 0.1}
    name = run.hash
    track = run.track

    def log(values: dict[str, float], step: int) -> None:
        for key, value in values.items():
            track(value, name=key, step=step)

    return Opened(log, run.close, lambda: _count(folder, name))


def _count(folder: Path, name: str) -> int:
    # A read-only run shows nothing until Aim's server has indexed it; one that is resumed shows what was
    # stored.
    run = Run(
        name, repo=str(folder), force_resume=True, system_tracking_interval=None, capture_terminal_logs=False
    )
    return sum(len(metric.values.values_list()) for metric in run.metrics() if metric.name in NAMES)


if __name__ == "__main__":
    main("aim", start)
