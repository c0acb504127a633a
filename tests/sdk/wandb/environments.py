"""An environment with W&B itself and with frameworks that Halving's own does not have."""

import fcntl
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from benchmarks.peers.installs import install

REQUIREMENTS = ("wandb==0.31.0", "trl==1.16.0", "torchtune==0.6.1", "torchao==0.11.0")


def frameworks_python() -> Path:
    """The interpreter of an environment that is kept from one test run to the next.

    It has the packages of this one, too, so that PyTorch is installed once.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "halving-tests" / "wandb-frameworks"
    home.mkdir(parents=True, exist_ok=True)
    with (cache / "halving-tests.lock").open("w") as lock:  # one of several test processes installs it
        fcntl.flock(lock, fcntl.LOCK_EX)
        _add_own_packages(home)
        installation = install(home, [REQUIREMENTS], "wandb, trl, torchtune")
    if installation.python is None:
        index = [sys.executable, "-m", "pip", "index", "versions", "pip"]
        if subprocess.run(index, capture_output=True, timeout=300, check=False).returncode:
            pytest.skip("no package index is reachable")
        pytest.fail(f"{' '.join(REQUIREMENTS)} cannot be installed: {installation.reason}")
    return installation.python


def _add_own_packages(home: Path) -> None:
    """Let an environment see the packages of this interpreter behind its own."""
    if not (home / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    (packages / "halving-tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
