"""A virtual environment of the recorded packages, made by pip without a network, and trainings in it."""

import json
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy
import pyarrow
import pytest

import halving
from halving import NotFound, Store
from halving.cli.main import main
from halving.query.runs import list_names
from halving.rerun import environment
from halving.rerun.environment import build_environment, requirements
from tests.sdk.records.checkouts import git
from tests.sdk.rerun.records import plan


def wheel(folder: Path, name: str, version: str) -> None:
    """The smallest package that pip installs."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as file:
        file.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        file.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nRequires-Dist: absent\n",
        )
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")


BACKEND = """
import pathlib, zipfile

def build_wheel(folder, settings=None, metadata=None):
    pathlib.Path("build").mkdir()  # as setuptools does
    with zipfile.ZipFile(f"{folder}/NAME-1.0-py3-none-any.whl", "w") as file:
        file.writestr("NAME.py", "VERSION = '1.0'")
        about = "NAME-1.0.dist-info/"
        file.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: NAME\\nVersion: 1.0\\n")
        wheel = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        file.writestr(about + "WHEEL", wheel)
        file.writestr(about + "RECORD", "")
    return "NAME-1.0-py3-none-any.whl"
"""


def project(folder: Path, name: str) -> Path:
    """A package's sources that bring what builds them."""
    folder.mkdir(parents=True)
    (folder / "backend.py").write_text(BACKEND.replace("NAME", name))
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    )
    return folder


@pytest.mark.slow
def test_it_has_exactly_the_recorded_versions_and_names_a_package_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = tmp_path / "index"
    index.mkdir()
    for version in ("1.0", "2.0"):
        wheel(index, "steady", version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    # as a worker leaves it: with another pip
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    inside = project(tmp_path / "code" / "lib", "inside")
    outside = project(tmp_path / "elsewhere", "outside")
    packages = dict.fromkeys(("steady", "inside", "outside"), "1.0")
    recorded = plan(packages=packages, packages_from={"inside": "checkout:lib", "outside": outside.as_uri()})
    with monkeypatch.context() as patch:
        # then the new environment has one until it is complete
        patch.setattr(environment, "_has_pip", lambda _: False)
        python = build_environment(recorded, tmp_path / "code", tmp_path / "environment")
    ask = "import importlib.metadata as m; print(sorted((d.name, d.version) for d in m.distributions()))"
    said = subprocess.run([python, "-I", "-c", ask], capture_output=True, text=True, check=True)
    assert said.stdout == f"{sorted(packages.items())}\n"  # and neither pip nor setuptools
    assert {path.name for path in [*inside.iterdir(), *outside.iterdir()]} == {"backend.py", "pyproject.toml"}
    with pytest.raises(
        NotFound, match=r"the recorded packages of p/r .* cannot be brought back: .*steady==3\.0"
    ):
        build_environment(plan(packages={"steady": "3.0"}), tmp_path / "code", tmp_path / "another")


def test_a_package_comes_from_where_it_came_from(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    origins = {
        "mine": "checkout:sdk",
        "local": f"file://{tmp_path}/lib",
        "forked": "git+https://example.org/forked.git@abc",
    }
    packages = {"mine": "1", "local": "1", "forked": "1", "numpy": "2.4.6"}
    recorded = plan(packages=packages, packages_from=origins)
    assert requirements(recorded, Path("/code")) == [
        "/code/sdk",
        f"{tmp_path}/lib",
        "forked @ git+https://example.org/forked.git@abc",
        "numpy==2.4.6",
    ]
    (tmp_path / "lib").rmdir()
    with pytest.raises(
        NotFound, match=rf"the package local 1 of run p/r is gone: it was installed from {tmp_path}/lib"
    ):
        requirements(recorded, Path("/code"))


@pytest.mark.slow
def test_a_python_that_is_not_here_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"Python 2\.7 of run p/r is not on this machine: install it"):
        build_environment(
            replace(plan(), environment={"python": {"version": "2.7.18"}}), tmp_path, tmp_path / "environment"
        )


SCRIPT = """
import os
import halving, steady

with halving.init("p", id=os.environ["NAME"], seed=1, system_metrics=None) as run:
    run.log({"score": float(steady.VERSION)}, step=1)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("no_git_settings")
def test_why_builds_each_recorded_set_of_packages_once_and_a_rerun_is_identical(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    index, bare, checkout = (tmp_path / name for name in ("index", "bare", "checkout"))
    for folder in (index, bare, checkout):
        folder.mkdir()
    for version in ("1.0", "2.0"):
        wheel(index, "steady", version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    # What halving itself needs is on the path without being an installed package there, so that "steady" is
    # all that is recorded.
    for module in (halving, numpy, pyarrow):
        for path in Path(str(module.__file__)).parent.parent.glob(f"{module.__name__}*"):
            if not path.name.endswith((".dist-info", ".egg-info")):
                (bare / path.name).symlink_to(path)
    monkeypatch.setenv("PYTHONPATH", str(bare))
    monkeypatch.setenv("HALVING_ROOT", store.root)
    (checkout / "train.py").write_text(SCRIPT)
    git(checkout, "init", "--quiet")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=first")
    for name, version in (("a", "1.0"), ("b", "2.0")):
        installed = tmp_path / f"with-{version}"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", installed], check=True)
        with zipfile.ZipFile(index / f"steady-{version}-py3-none-any.whl") as file:
            file.extractall(next(installed.glob("lib/python*/site-packages")))
        subprocess.run(
            [installed / "bin" / "python", "train.py"],
            cwd=checkout,
            check=True,
            env={**os.environ, "NAME": name},
        )
    monkeypatch.setenv("NAME", "taken from the request")
    how = ["--env", "--repository", str(checkout), "--root", store.root, "--json"]
    assert main(["why", "p/a", "p/b", "--rerun", "--repeat", "2", "--yes", *how]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert list(answer["differs"]) == ["packages"]
    values = {arm["name"]: arm["values"] for arm in answer["attribution"]["arms"]}
    assert values == {"as it was": [1.0, 1.0], "packages": [2.0, 2.0]}
    assert said.err.count("building a virtual environment of 1 recorded packages") == 2
    assert said.err.index("rerun 1 of 4") > said.err.rindex("building")
    assert main(["rerun", "p/b", "--strict", *how]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "identical"
    next(index.glob("steady-2.0*")).unlink()
    before = list_names(store)
    assert main(["why", "p/a", "p/b", "--rerun", "--repeat", "3", "--yes", *how]) == 1
    assert re.search(
        r"halving why: the recorded packages of p/b .* cannot be brought back: .*steady==2\.0",
        capsys.readouterr().err,
    )
    assert list_names(store) == before
