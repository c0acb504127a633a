"""Runs pytest, and then once more the tests that failed: alone, in one process, after all others.

``python -m tests.run [PYTEST'S ARGUMENTS]``

A test that passes the second time is unsteady: the run is green, and its last lines name the test. A test
that fails twice is red. So are more than five failures, and a test that takes its whole process along: the
run ends there.
"""

import json
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

MAX_UNSTEADY = 5
_CRASHED = "halving/crashed"
_GROUP = re.compile(r"(?P<id>[^\[@]+(\[.*\])?)@[^\]]*", re.DOTALL)


def main(arguments: list[str]) -> int:
    """Run the tests that pytest's arguments choose, and return the exit status."""
    with tempfile.TemporaryDirectory() as cache:
        status = _run_pytest(cache, arguments)
        failed = _read_failed(Path(cache))
        if status != pytest.ExitCode.TESTS_FAILED or not failed:
            return status
        if len(failed) > MAX_UNSTEADY:
            print(
                f"{len(failed)} tests failed, which is more than the {MAX_UNSTEADY} that are run once more",
                flush=True,
            )
            return status
        print(f"\nonce more, alone: {len(failed)} of the tests", flush=True)
        report = Path(cache) / "second.xml"
        second_status = _run_pytest(cache, ["--numprocesses=0", f"--junitxml={report}", *failed])
        if second_status != pytest.ExitCode.OK or _count_passed(report) != len(failed):
            return status
    for test in failed:
        print(f"unsteady: {test}", flush=True)
    return pytest.ExitCode.OK


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, sched: Any) -> None:
    """Note that a test took its process along; called by pytest-xdist, to which this module is a plugin."""
    sched.config.cache.set(_CRASHED, crashitem)


def without_group(test: str) -> str:
    """A test's id without the name of its ``xdist_group``, which pytest-xdist appends as ``@group``."""
    grouped = _GROUP.fullmatch(test)
    return grouped["id"] if grouped else test


def _run_pytest(cache: str, arguments: list[str]) -> int:
    # with a new worker pytest-xdist may wait for ever
    options = ["-p", "tests.run", "-o", f"cache_dir={cache}", "--max-worker-restart=0"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    process = subprocess.Popen(command)
    # Ctrl-C reaches pytest as well, which then ends what its tests have started.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    return process.wait()


def _read_failed(cache: Path) -> list[str]:
    """The ids of the tests that failed and may run once more, as pytest takes them."""
    values = cache / "v"
    crashed = values / _CRASHED
    failed = values / "cache" / "lastfailed"
    if crashed.exists():
        print(f"{json.loads(crashed.read_text())} took its process along", flush=True)
        return []
    if not failed.exists():
        return []
    return [without_group(test) for test in json.loads(failed.read_text())]


def _count_passed(report: Path) -> int:
    """The number of tests that passed, by the report of a run; none where it did not come to its end."""
    if not report.exists():
        return 0
    suite = next(ElementTree.parse(report).iter("testsuite"))
    count = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    return count["tests"] - count["failures"] - count["errors"] - count["skipped"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
