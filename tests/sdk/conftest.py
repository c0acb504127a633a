"""Every SDK test works in a folder of its own, outside of any git checkout, with a store under it."""

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from halving import Store

IGNORING = ("sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")
"""Before a command: it inherits SIGINT and SIGTERM as ignored."""

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALVING_CACHE", str(tmp_path / "cache"))  # of shards


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def every_save(monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint is too expensive: each ``run.save`` writes."""
    monkeypatch.setattr("halving.checkpoints.interval.SHARE", math.inf)


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    """Run Python source as a script in an interpreter of its own, as a user would; its store is the test's, or ``tmp_path/store``."""
    own = next((name for name in ("store", "any_store") if name in request.fixturenames), None)
    root = request.getfixturevalue(own).root if own else str(tmp_path / "store")

    def run(source: str, *arguments: str, before: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
        path = tmp_path / "script.py"
        path.write_text(source)
        environment = {**os.environ, "HALVING_ROOT": root}
        command = [*before, sys.executable, str(path), *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False)

    return run
