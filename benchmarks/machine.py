"""The machine, the versions, and processes of their own to measure in."""

import contextlib
import importlib.metadata
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

CHECKOUT = Path(__file__).parent.parent
PACKAGES = ("pyarrow", "duckdb", "numpy", "torch")
_CHILDREN: "set[subprocess.Popen[str]]" = set()
_CHILD = """
import importlib, json, sys
module, _, name = sys.argv[1].partition(":")
result = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
print(json.dumps(result), flush=True)
"""


_Choice = TypeVar("_Choice")


@dataclass(frozen=True)
class Setting:
    """What a part gets to measure with.

    Attributes:
        work: an empty folder, removed afterwards.
        home: the folder that stays, with the environments of the other trackers.
        quick: small sizes and one round: a smoke run.
    """

    work: Path
    home: Path
    quick: bool

    def choose(self, quick: _Choice, full: _Choice) -> _Choice:
        """What a quick run and a full one have: sizes, a number of rounds, seconds."""
        if self.quick:
            return quick
        return full

    def settle(self) -> None:
        """Wait until what was written has reached the disk, so that no round pays for the one before.

        A quick run leaves that out.
        """
        if not self.quick:
            os.sync()
            time.sleep(0.2)


class ChildFailed(RuntimeError):
    """A measuring process ended badly; the message holds the end of what it said."""


def facts(folder: Path) -> dict[str, Any]:
    """What the figures depend on: machine, load, versions, commit and date."""
    machine = (
        _processor(),
        f"{os.cpu_count()} cores",
        _memory(),
        _disk(folder),
        platform.system(),
        f"Python {platform.python_version()}",
    )
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "machine": ", ".join(machine),
        "versions": ", ".join(f"{name} {_version(name)}" for name in PACKAGES),
        "commit": _commit(),
        "load": round(os.getloadavg()[0], 2),
    }


def both_ways(turn: int) -> tuple[bool, bool]:
    """False and True, in an order that alternates, because what is measured first may gain by it."""
    if turn % 2 == 0:
        return False, True
    return True, False


def in_child(function: str, /, **arguments: Any) -> Any:
    """Call ``module:function`` in a fresh process and return what it returned (JSON both ways).

    Raises:
        ChildFailed: it ended with an error.
    """
    return run_call(function, json.dumps(arguments))


def run_call(function: str, arguments: str) -> Any:
    """Call a function as :func:`in_child`, with arguments in JSON.

    The tests of quick runs replace it by a fork of a process that has imported everything.
    """
    return run_json([sys.executable, "-c", _CHILD, function, arguments], cwd=CHECKOUT)


def run_json(
    command: list[str], *, cwd: Path, environment: dict[str, str] | None = None, timeout: float = 900
) -> Any:
    """Run a command and parse the last line it prints.

    Raises:
        ChildFailed: it ended with an error, took longer than ``timeout`` s, or its last line is not JSON.
    """
    # A session of its own, so that what it has started ends with it.
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        _CHILDREN.add(process)
        try:
            output, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise ChildFailed(f"not done after {timeout:.0f} s") from None
        finally:
            _end(process)
            _CHILDREN.discard(process)
    try:
        if process.returncode == 0:
            return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        pass
    raise ChildFailed(last_words(errors or output) or f"exit status {process.returncode}")


def end_children() -> None:
    """End the measuring processes of all threads, and what they have started."""
    for process in list(_CHILDREN):
        _end(process)


def _end(process: "subprocess.Popen[str]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def last_words(text: str) -> str:
    """The last line of a text that is not empty, for a table's cell."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1][:300] if lines else ""


@contextmanager
def work_folder(folder: Path, name: str) -> Iterator[Path]:
    """An empty folder on the benchmark's disk that is gone afterwards."""
    parent = folder / "work"
    parent.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / (1 << 30):.0f} GiB"
    except (OSError, ValueError):
        return "memory unknown"


def _disk(folder: Path) -> str:
    done = subprocess.run(["df", "-PT", str(folder)], capture_output=True, text=True, check=False)
    cells = []
    if done.returncode == 0:
        cells = done.stdout.splitlines()[-1].split()
    if len(cells) > 1:
        return f"{cells[1]} disk"
    return "disk unknown"
