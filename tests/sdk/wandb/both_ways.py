"""A training run with W&B itself and imported, and the same by ``halving run --as-wandb``."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import halving
from halving import Store
from halving.query.curve_stats import fill_last, keys_of, read_curve
from halving.query.runs import list_runs
from tests.sdk.imports.wandb_files import documents

TRAININGS = Path(__file__).parent / "trainings"
SDK = str(Path(halving.__file__).parent.parent)
# What depends on how fast the machine was at that moment: names and steps are equal, values are not.
TIMED = ("runtime", "samples_per_second", "steps_per_second", "_runtime", "tokens_per_second")
# Nobody reports home, nothing is looked up, and sums are made in one order.
QUIET = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "WANDB_PROJECT": "equal",
    "WANDB_SILENT": "true",
}


def run_with_wandb(python: Path, training: str, folder: Path, *arguments: str) -> None:
    """Run a training with W&B, offline."""
    _run([str(python), str(TRAININGS / training), *arguments], folder, {"WANDB_MODE": "offline"})


def run_import(source: Path, root: str) -> None:
    """Import what W&B has written."""
    _run([*_halving(), "import", "wandb", str(source), "--root", root], source, {"PYTHONPATH": SDK})


def run_as_wandb(python: Path, training: str, folder: Path, root: str, *arguments: str) -> None:
    """Run a training with Halving in W&B's place."""
    command = [str(python), str(TRAININGS / training), *arguments]
    _run([*_halving(), "run", "--as-wandb", "--root", root, "--", *command], folder, {"PYTHONPATH": SDK})


def recorded(root: str) -> dict[str, dict[str, Any]]:
    """What a store has of each run, by the run's name, or its id where it has none."""
    store = Store(root)
    runs = {}
    for info in fill_last(store, list_runs(store)):
        # The last value of each step: ours has also those that a script replaced before the step was over.
        curves = {
            key: read_curve(store, info.project, info.run, key)
            for key in keys_of(store, info.project, info.run)
            if not key.startswith("system/")
        }
        points = {
            key: [
                (step, _value(key, value))
                for step, value in zip(curve.step.tolist(), curve.value.tolist(), strict=True)
            ]
            for key, curve in curves.items()
        }
        media = [
            (row["key"], row["step"], row["kind"], row["caption"], _content(store, row))
            for row in documents(store, info.project, info.run, "media/*.json")
        ]
        runs[info.tags.get("name", info.run)] = {
            "project": info.project,
            "params": info.params,
            "tags": info.tags,
            "ends": [attempt.status for attempt in info.attempts],
            "points": points,
            "summary": {
                key: _value(key, value)
                for key, value in info.summary.items()
                if not key.startswith("system/")
            },
            "media": sorted(media, key=lambda medium: (medium[0], medium[1])),
        }
    return runs


def _value(key: str, value: object) -> str:
    if key.endswith(TIMED):
        return "a time"
    return str(value)


def _content(store: Store, row: dict[str, Any]) -> object:
    """A medium's content; of an image its pixels, because there are many ways to write a PNG file."""
    content = store.get_blob(row["digest"])
    if row["kind"] == "image":
        pixels = np.asarray(Image.open(io.BytesIO(content)))
        return pixels.tolist()
    return content


def _halving() -> list[str]:
    return [sys.executable, "-m", "halving.cli.main"]


def _run(command: list[str], folder: Path, variables: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("WANDB_", "HALVING_", "PYTHON"))
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=kept | QUIET | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
