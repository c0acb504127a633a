"""Every SDK test works in a folder of its own, outside of any git checkout, with a store under it."""

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from halving import Store
from tests.s3 import S3, Gate

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
def s3_gate(s3: S3) -> Iterator[Gate]:
    """A gate before the session's S3, which a test shuts."""
    gate = Gate((s3.host, s3.port))
    yield gate
    gate.shut()


@pytest.fixture
def every_save(monkeypatch: pytest.MonkeyPatch) -> None:
    save_always(monkeypatch)


def save_always(patch: pytest.MonkeyPatch) -> None:
    """No checkpoint is too expensive: each ``run.save`` writes."""
    for share in ("SHARE", "STALL_SHARE", "BESIDE_SHARE"):
        patch.setattr(f"halving.checkpoints.interval.{share}", math.inf)


@pytest.fixture
def no_git_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever git settings the machine has, the test sees none."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ada@example.org")


@pytest.fixture
def script(request: pytest.FixtureRequest, tmp_path: Path) -> Script:
    """Run Python source as a script in an interpreter of its own, as a user would; its store is the test's,
    or ``tmp_path/store``.
    """
    own = next((name for name in ("store", "any_store") if name in request.fixturenames), None)
    root = request.getfixturevalue(own).root if own else str(tmp_path / "store")

    def run(source: str, *arguments: str, before: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
        path = tmp_path / "script.py"
        path.write_text(source)
        environment = {**os.environ, "HALVING_ROOT": root}
        command = [*before, sys.executable, str(path), *arguments]
        # One that hangs is ended by pytest's own timeout, however busy the machine is.
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run
