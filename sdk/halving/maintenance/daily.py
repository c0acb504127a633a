"""Retention that nobody asks for is begun here, where a laptop's runs end: once a day, in a process of its
own with the lowest priority.

The SDK knows nothing of what is kept. It begins ``halving retention --if-due`` of the application where that
is installed beside it, and nothing where it is not. The folder ``retention/begun`` of the store has a file
for the day on which it was begun last, in UTC: of several processes whoever creates it begins. A process that
has done what it was begun for leaves ``DAY.ended`` there. Where there is none an hour later, it failed, or
was killed with the container or the job that began it: whoever creates ``DAY.2`` begins another one, and so
on.
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
"""In the store's folder: what the process said that was begun last."""

_BEGUN = "retention/begun"
_APPLICATION = "application"  # of the entry points halving.commands: whoever has it has `halving retention`
# after which a process that has not ended well is taken for lost; one beside another does no harm
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
# by folder: an object without a name would warn that its process still runs
_processes: dict[Path, "subprocess.Popen[bytes]"] = {}
_log = logging.getLogger(__name__)


def begin_daily(store: Store, today: date | None = None) -> "subprocess.Popen[bytes] | None":
    """Begin retention of a store in a folder, unless it was begun today and has ended well, or perhaps still
    runs.

    It outlives this process, which need not wait for it.

    On the day on which it is called first it only leaves its mark: nothing is old enough then. It does not
    raise: whoever calls it is at the end of something that matters more.

    Returns:
        The process, or None: nothing was begun.
    """
    with contextlib.suppress(Exception):
        # those that have ended are waited for here, or a server would keep them as defunct for a day
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
    """Begin retention as :func:`begin_daily` does, and say so: on a terminal, and where there is none in the
    log.

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
    """What to say of it to people."""
    return (
        f"old data goes in the background, once a day; what went: {store.address(LOG)}; retention.yaml in "
        "the store says what is kept"
    )


def claim(folder: Path, day: date) -> bool:
    """Take a day, if nobody else has or whoever has is lost, and say whether retention is to begin on it: not
    on the first one.
    """
    place = folder / _BEGUN
    place.mkdir(parents=True, exist_ok=True)
    names = os.listdir(place)
    mark = _next_mark(place, day)
    if mark is None:
        return False
    try:
        (place / mark if names else _end_mark(folder, day)).open("x").close()
    except FileExistsError:
        return False
    for name in names:
        if not name.startswith(day.isoformat()):
            (place / name).unlink(missing_ok=True)
    return bool(names)


def _next_mark(place: Path, day: date) -> str | None:
    """The file that whoever begins it on a day creates; None: it has ended well on that day, or perhaps still
    runs.
    """
    names = os.listdir(place) if place.is_dir() else []
    marks = [place / name for name in names if name.startswith(day.isoformat())]
    if not marks:
        return day.isoformat()
    newest = max(mark.stat().st_mtime for mark in marks)
    if _end_mark(place.parent.parent, day) in marks or time.time() - newest < _AGAIN_SECONDS:
        return None
    return f"{day.isoformat()}.{len(marks) + 1}"


def _end_mark(folder: Path, day: date) -> Path:
    return folder / _BEGUN / f"{day.isoformat()}.ended"


def _has_application() -> bool:
    from importlib.metadata import entry_points  # 10 ms, which nobody pays who has nothing to begin

    return any(entry.name == _APPLICATION for entry in entry_points(group="halving.commands"))


def _start(folder: Path, day: date) -> "subprocess.Popen[bytes]":
    import subprocess

    # -P: in a script's own folder there may be a file that is called as a module of Python's is.
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
