"""The wheel: what somebody installs who has no checkout."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.backends import CHECKOUT


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_page_every_migration_and_every_template(tmp_path: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    kinds = (".html", ".md", ".mako", ".py")
    wanted = {
        name
        for name in tracked
        if name.startswith("server/static/")
        or (
            name.startswith(("assets/", "commands/", "pipelines/", "resources/", "server/"))
            and name.endswith(kinds)
        )
    }
    assert {"server/static/index.html", "resources/catalog/migrations/env.py"} <= wanted
    source = tmp_path / "source"
    subprocess.run(
        ["git", "checkout-index", "--all", f"--prefix={source}/"], cwd=CHECKOUT, check=True
    )  # built where nothing is left behind
    # What pip asks of the project's build backend; pip itself would start it four times.
    program = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", program], cwd=source, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("*.whl")
    assert wanted - set(ZipFile(wheel).namelist()) == set()


def test_the_sdk_needs_numpy_and_pyarrow_alone_and_nothing_of_it_mlflows_package() -> None:
    project = tomllib.loads((CHECKOUT / "sdk" / "pyproject.toml").read_text())["project"]
    assert [re.match(r"[\w-]+", needed)[0] for needed in project["dependencies"]] == ["numpy", "pyarrow"]  # type: ignore[index]
    assert not [
        needed
        for extra in project["optional-dependencies"].values()
        for needed in extra
        if needed.startswith("mlflow")
    ]
