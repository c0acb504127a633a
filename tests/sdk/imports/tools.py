"""The tools whose runs are imported, each in an environment that is kept from one test run to the next."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.peers.installs import environment, install


def python_with(tool: str, *requirements: str) -> Path:
    """The interpreter of an environment with a tool in it, and what else is required."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "halving-tests.lock").open("w") as lock:  # one of several test processes installs it
        fcntl.flock(lock, fcntl.LOCK_EX)
        installation = install(cache / "halving-tests" / tool, [requirements], tool)
    if installation.python is None:
        pytest.fail(f"{tool} cannot be installed: {installation.reason}")
    return installation.python


def run_script(python: Path, source: str, folder: Path, *arguments: str, status: int | None = 0) -> None:
    """Run Python source in a folder, and hold it to its exit status (None: whatever it is)."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "script.py"
    script.write_text(source)
    done = subprocess.run(
        [str(python), str(script), *arguments],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        timeout=300,
        start_new_session=True,  # a script may kill its whole group
        check=False,
    )
    assert status is None or done.returncode == status, done.stdout + done.stderr
