"""Kills, and other processes at work, before the n-th change of a store's files or of a catalog.

A store is in a folder or on S3, and a change of a catalog is a commit.

A process that is killed there has left what the changes before it made, and nothing else. So whoever is
killed at each n, until one run comes to its end, has been in every state that a kill can leave, but for what
threads of the same process do in another order.
"""

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from halving import Store
from halving.store import create_once
from halving.store.files import Files

_OF_FILESYSTEM = ("open_output_stream", "delete_file", "delete_dir", "create_dir", "move", "copy_file")
# On a folder, with the place of the path that changes among the arguments.
_OF_SYSTEM = {"link": 1, "replace": 1, "rename": 1, "unlink": 0, "rmdir": 0}


class Killed(BaseException):
    """Nothing catches it, as nothing catches a kill."""


class _Filesystem:
    """Arrow's, which tells before it changes a file."""

    def __init__(self, inner: Any, tell: Callable[[], None]) -> None:
        self._inner = inner
        self._tell = tell

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._inner, name)
        return _telling(function, self._tell) if name in _OF_FILESYSTEM else function


@contextmanager
def before_each_change(within: Path, tell: Callable[[], None]) -> Iterator[None]:
    """Have ``tell`` called before each change of files in a folder, of objects, and of a catalog."""

    def is_within(path: Any) -> bool:
        return isinstance(path, str | Path) and str(path).startswith(f"{within}/")

    def telling_within(function: Callable[..., Any], place: int) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if is_within(arguments[place]):
                tell()
            return function(*arguments, **named)

        return call

    def on_commit(_connection: Any) -> None:
        tell()

    opened: Callable[[Files], Any] = vars(Files)["filesystem"].fget
    sqlalchemy = sys.modules.get("sqlalchemy")  # the SDK's tests do without it
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, place in _OF_SYSTEM.items():
            patch.setattr(os, name, telling_within(getattr(os, name), place))
        patch.setattr(Files, "filesystem", property(lambda files: _Filesystem(opened(files), tell)))
        if sqlalchemy is not None:
            sqlalchemy.event.listen(sqlalchemy.Engine, "commit", on_commit)
            stack.callback(sqlalchemy.event.remove, sqlalchemy.Engine, "commit", on_commit)
        yield


def is_killed(step: int, within: Path, action: Callable[[], object]) -> bool:
    """Do something that ends before its n-th change, from 0, as if it were killed there; whether it was.

    From then on nothing is changed any more, by no thread: what cleans up after an error does not after a
    kill.
    """
    count = 0
    lock = threading.Lock()

    def tell() -> None:
        nonlocal count
        with lock:
            count += 1
            if count > step:
                raise Killed

    with before_each_change(within, tell):
        try:
            action()
        except Killed:
            return True
    assert count <= step, "something caught the kill"
    return False


def is_process_killed(step: int, within: Path, action: Callable[[], object]) -> bool:
    """The same in a child of this process, which is really killed."""
    child = os.fork()
    if not child:
        left = threading.Semaphore(step)

        def tell() -> None:
            if not left.acquire(blocking=False):
                os.kill(os.getpid(), signal.SIGKILL)

        try:
            with before_each_change(within, tell):
                action()
        except BaseException:  # noqa: BLE001  # whatever it is, the child must not go on with the tests
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"at step {step} it failed, with status {status}"
    return status != 0


def is_met(step: int, within: Path, first: Callable[[], object], second: Callable[[], object]) -> bool:
    """Do two things, of which the first waits before its n-th change until the second has ended.

    It also goes on when the second waits for it. Returns whether the first came so far.

    Where it has no such change the second comes after it. It waits where the first has a marker for a file
    that both want to change.
    """
    left = itertools.count(step, -1)
    goes_on = threading.Event()
    beside = list[Future[object]]()

    class Watched:
        """The time as the markers' module has it; its sleep is how one waits for another."""

        monotonic = staticmethod(time.monotonic)

        @staticmethod
        def sleep(seconds: float) -> None:
            goes_on.set()
            time.sleep(seconds)

    with ThreadPoolExecutor(1, "second") as pool, pytest.MonkeyPatch.context() as patch:

        def tell() -> None:
            if not threading.current_thread().name.startswith("second") and next(left) == 0:
                beside.append(pool.submit(second))
                beside[0].add_done_callback(lambda _: goes_on.set())
                goes_on.wait()

        patch.setattr(create_once, "time", Watched)
        with before_each_change(within, tell):
            first()
        for future in beside:
            future.result()
    if not beside:
        second()
    return bool(beside)


def be_later(*stores: Store) -> None:
    """Make marks of a killed process expire: markers count for two minutes, and empty folders for a day."""
    for store in stores:
        for name, _, _ in store.files(""):
            if ".claim-" in name:
                store.delete(name.lstrip("/"))
        for folder, _, _ in os.walk(store.folder or ""):
            os.utime(folder, (0, 0))


def _telling(function: Callable[..., Any], tell: Callable[[], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        tell()
        return function(*arguments, **named)

    return call
