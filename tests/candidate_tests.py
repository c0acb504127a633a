"""Integration tests of an exported model, as a spec names them; each behaves in another way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import halving


def passing(folder: str) -> None:
    assert (Path(folder) / "model.json").exists()
    answers = halving.load_model(folder).predict({"x": [0.1, 0.9]})
    if list(answers) != ["low", "high"]:
        raise AssertionError(f"it says {answers}")


def looking_around(folder: str) -> None:
    """Of the platform it has the store alone, and no password of a database."""
    assert "HALVING_ROOT" in os.environ
    there = {"HALVING_CATALOG", "PGPASSWORD", "DAGSTER_PG_PASSWORD"} & os.environ.keys()
    assert not there, there


def failing(folder: str) -> None:
    raise AssertionError("it says 'low' of 1.0")


def hanging(folder: str) -> None:
    # what it starts is ended with it
    subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"], check=False)


def dying(folder: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)


def filling(folder: str) -> None:
    subprocess.run(
        [sys.executable, "-c", "held = bytearray(800 << 20); import time; time.sleep(600)"], check=False
    )
