"""The wheel: what somebody installs who has no checkout."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.backends import CHECKOUT


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_page_every_migration_and_every_template(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout.splitlines()
    kinds = (".html", ".md", ".mako", ".py")
    wanted = {
        name
        for name in tracked
        if name.startswith("server/static/")
        or (name.startswith(("assets/", "pipelines/", "resources/", "server/")) and name.endswith(kinds))
    }
    assert {"server/static/index.html", "resources/catalog/migrations/env.py"} <= wanted
    source = tmp_path / "source"
    subprocess.run(
        ["git", "checkout-index", "--all", f"--prefix={source}/"], cwd=CHECKOUT, check=True
    )  # built where nothing is left behind
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wanted - set(ZipFile(wheel).namelist()) == set()
