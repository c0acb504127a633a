"""Starting the daily retention where a laptop's runs end, in a low-priority process of its own.

The SDK does not know the policy. Where the application is installed, it starts ``halving retention
--if-due``; elsewhere it does nothing. The folder ``retention/begun`` of the store has a file
for the day on which it was started last, in UTC: of several processes, the one that creates the file starts
it. A process that has done its work leaves ``DAY.ended`` there. Where there is none an hour later, it failed,
or was killed with its container or job: whoever creates ``DAY.2`` starts another one, and so on.
"""

import contextlib
import logging
import os
import sys
import time
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from halving.store.store import Store

if TYPE_CHECKING:
    import subprocess

LOG = "retention/by-itself.log"
"""The output of the process that was started last, in the store's folder."""

_BEGUN = "retention/begun"
_APPLICATION = "application"  # The entry point of `halving.commands` that has `halving retention`.
# After so long, a process that has not ended well counts as lost. Two at the same time do no harm.
_AGAIN_SECONDS = 3600.0
_MAIN = """
import os, sys
os.nice(19)
from halving.cli.main import main
status = main(sys.argv[2:])
if status == 0:
    open(sys.argv[1], "w").close()
sys.exit(status)
"""
# The processes by folder. A Popen object that is freed would warn that its process still runs.
_processes: dict[Path, "subprocess.Popen[bytes]"] = {}
_log = logging.getLogger(__name__)


def begin_daily(store: Store, today: date | None = None) -> "subprocess.Popen[bytes] | None":
    """Start retention of a store in a folder, unless it ran today, or perhaps still runs.

    The started process outlives this one. On a store's first day nothing is old enough, so nothing is
    started. No error is raised, because retention matters less than the training that has just ended.

    Returns:
        The process, or None: nothing was begun.
    """
    with contextlib.suppress(Exception):
        # Wait for ended processes here, or a server would keep them as defunct for a day.
        for folder, process in list(_processes.items()):
            if process.poll() is not None:
                _processes.pop(folder, None)
    if store.folder is None or store.folder in _processes:
        return None
    day = today or datetime.now(UTC).date()
    with contextlib.suppress(Exception):
        if (
            _next_mark(store.folder / _BEGUN, day) is not None
            and _has_application()
            and claim(store.folder, day)
        ):
            process = _processes[store.folder] = _start(store.folder, day)
            return process
    return None


def begin_after_run(store: Store) -> None:
    """Start retention as :func:`begin_daily` does, and say so on a terminal, else in the log.

    It does not raise.
    """
    with contextlib.suppress(Exception):
        if begin_daily(store) is None:
            return
        if sys.stderr is not None and not sys.stderr.closed and sys.stderr.isatty():
            print(f"halving: {begun_line(store)}", file=sys.stderr)
        else:
            _log.info("%s", begun_line(store))


def begun_line(store: Store) -> str:
    """The line that tells people that retention has been started."""
    return (
        f"old data goes in the background, once a day; what went: {store.address(LOG)}; retention.yaml in "
        "the store says what is kept"
    )


def claim(folder: Path, day: date) -> bool:
    """Take a day, unless another live process has it; return whether retention is to start on it.

    It does not start on the store's first day.
    """
    place = folder / _BEGUN
    place.mkdir(parents=True, exist_ok=True)
    names = os.listdir(place)
    mark = _next_mark(place, day)
    if mark is None:
        return False
    path = place / mark
    if not names:  # On the first day retention counts as done: nothing is old enough.
        path = _end_mark(folder, day)
    try:
        path.open("x").close()
    except FileExistsError:
        return False
    for name in names:
        if not name.startswith(day.isoformat()):
            (place / name).unlink(missing_ok=True)
    return bool(names)


def _next_mark(place: Path, day: date) -> str | None:
    """The file whose creator starts retention on a day; None where it has ended well, or may still run."""
    marks = list(place.glob(f"{day.isoformat()}*"))
    if not marks:
        return day.isoformat()
    newest = max(mark.stat().st_mtime for mark in marks)
    if _end_mark(place.parent.parent, day) in marks or time.time() - newest < _AGAIN_SECONDS:
        return None
    return f"{day.isoformat()}.{len(marks) + 1}"


def _end_mark(folder: Path, day: date) -> Path:
    return folder / _BEGUN / f"{day.isoformat()}.ended"


def _has_application() -> bool:
    from importlib.metadata import entry_points  # It takes 10 ms, so only those import it who need it.

    return any(entry.name == _APPLICATION for entry in entry_points(group="halving.commands"))


def _start(folder: Path, day: date) -> "subprocess.Popen[bytes]":
    import subprocess

    # With -P, a file of the working folder cannot stand in for one of Python's own modules.
    command = [
        sys.executable,
        "-P",
        "-c",
        _MAIN,
        str(_end_mark(folder, day)),
        "retention",
        "--if-due",
        "--root",
        str(folder),
    ]
    with (folder / LOG).open("wb") as log:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
