"""What counts as a process that a test starts."""

import multiprocessing
import os
import subprocess
import sys

import pytest

from tests.started_processes import started_processes

_NOTHING = ["sh", "-c", ":"]


def test_a_question_to_git_starts_nothing() -> None:
    with started_processes() as started:
        subprocess.run(["git", "--version"], check=True, capture_output=True)
    assert started == []


@pytest.mark.slow
def test_programs_forks_and_processes_of_python_are_noted() -> None:
    with started_processes() as started:
        subprocess.run([sys.executable, "-c", ""], check=True)
        subprocess.Popen(args=_NOTHING).wait()
        process = multiprocessing.get_context("spawn").Process(target=os.getpid, name="of Python's")
        process.start()
        process.join()
        if (child := os.fork()) == 0:
            os._exit(0)
        os.waitpid(child, 0)
    assert started == [sys.executable, "sh", "of Python's", "os.fork"]
    subprocess.run(_NOTHING, check=True)
    assert len(started) == 4
