"""What runs the tests: a failed test has a second chance, alone, and is named where it takes it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.backends import CHECKOUT
from tests.run import MAX_UNSTEADY, without_group

UNSTEADY = """
import pathlib

import pytest


@pytest.mark.parametrize("name", {names})
@pytest.mark.xdist_group("grouped")
def test_passes_the_second_time(name):
    ran = pathlib.Path("ran " + name)
    first = not ran.exists()
    ran.touch()
    assert not first


def test_passes():
    ran = pathlib.Path("passed")
    assert not ran.exists(), "a test that passed was run again"
    ran.touch()
"""


def run(folder: Path, content: str) -> "subprocess.CompletedProcess[str]":
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --numprocesses=2 --dist=loadgroup\n")
    (folder / "test_some.py").write_text(content)
    return subprocess.run(
        [sys.executable, "-m", "tests.run"],
        cwd=folder,
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_tests_that_pass_the_second_time_are_green_and_named(tmp_path: Path) -> None:
    names = ["a@b", "c]d", "e f"]
    process = run(tmp_path, UNSTEADY.format(names=names))
    assert process.returncode == 0, process.stdout + process.stderr
    named = [f"unsteady: test_some.py::test_passes_the_second_time[{name}]" for name in names]
    assert sorted(process.stdout.splitlines()[-3:]) == sorted(named)


@pytest.mark.slow
def test_a_test_that_fails_twice_is_red(tmp_path: Path) -> None:
    process = run(tmp_path, UNSTEADY.format(names=["a"]) + "\n\ndef test_fails():\n    assert False\n")
    assert process.returncode == 1
    assert "unsteady" not in process.stdout


@pytest.mark.slow
def test_more_unsteady_tests_than_there_may_be_are_red(tmp_path: Path) -> None:
    process = run(tmp_path, UNSTEADY.format(names=[str(number) for number in range(MAX_UNSTEADY + 1)]))
    assert process.returncode == 1
    assert "6 tests failed, which is more than the 5" in process.stdout
    assert "once more, alone" not in process.stdout


@pytest.mark.slow
def test_a_file_that_cannot_be_imported_is_red(tmp_path: Path) -> None:
    process = run(tmp_path, "import nothing_of_this_name\n")
    assert process.returncode != 0
    assert "No module named 'nothing_of_this_name'" in process.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "second",
    ["pytest.skip()", "os._exit(0)"],
)
def test_a_test_that_does_not_pass_the_second_time_is_red(tmp_path: Path, second: str) -> None:
    content = f"""
import os
import pathlib

import pytest


def test_does_not_pass():
    ran = pathlib.Path("ran")
    if ran.exists():
        {second}
    ran.touch()
    assert False
"""
    process = run(tmp_path, content)
    assert process.returncode == 1
    assert "once more, alone" in process.stdout
    assert "unsteady" not in process.stdout


@pytest.mark.slow
def test_a_test_that_took_its_process_along_is_red_whatever_the_others_do(tmp_path: Path) -> None:
    kill = """

def test_is_killed():
    import os, signal
    ran = pathlib.Path("killed")
    first = not ran.exists()
    ran.touch()
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
"""
    process = run(tmp_path, UNSTEADY.format(names=["a"]) + kill)
    assert process.returncode == 1
    assert "test_some.py::test_is_killed took its process along" in process.stdout
    assert "unsteady" not in process.stdout


@pytest.mark.slow
def test_a_teardown_that_fails_once_is_unsteady(tmp_path: Path) -> None:
    content = """
import pathlib

import pytest


@pytest.fixture
def breaks():
    yield
    ran = pathlib.Path("ran")
    first = not ran.exists()
    ran.touch()
    assert not first


def test_with_it(breaks):
    pass
"""
    process = run(tmp_path, content)
    assert process.returncode == 0, process.stdout
    assert process.stdout.splitlines()[-1] == "unsteady: test_some.py::test_with_it"


@pytest.mark.parametrize(
    ("test", "id_alone"),
    [
        ("test_a.py::test_b", "test_a.py::test_b"),
        ("test_a.py::test_b@a group", "test_a.py::test_b"),
        ("test_a.py::test_b[digits@champion]", "test_a.py::test_b[digits@champion]"),
        ("test_a.py::test_b[[x]@y]@a group", "test_a.py::test_b[[x]@y]"),
    ],
)
def test_a_group_is_no_part_of_a_tests_id(test: str, id_alone: str) -> None:
    assert without_group(test) == id_alone
