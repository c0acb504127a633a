"""Queries of agents in a process of their own, which is ended if one takes more time or memory than it may.

DuckDB neither counts a text that a function makes against its memory limit, nor interrupts such a function:
``repeat('a', 4000000000)`` alone would fill a server's memory. So may planning a query that nests deeply.
"""

import atexit
import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple

from halving.errors import HalvingError, InvalidInput, StoreError
from halving.query.sql import Confinement, ask_confined
from halving.store.store import Store
from resources.agents.marking import clean, clean_value
from resources.evaluation.memory_limit import LOOK_SECONDS, Family, goes_first

MAX_MEMORY_MB = 1_024
"""Of the process, beside what DuckDB may take."""
GRACE_SECONDS = 1.0
"""After the query's own end, in which DuckDB's error is better than ours."""
_START_SECONDS = 60.0
_MAX_IDLE = 2


class Lines(NamedTuple):
    """A query's result as an agent reads it.

    Attributes:
        head: the columns' names, with bars between them.
        rows: a line for each row.
        more: whether there are more rows.
    """

    head: str
    rows: list[str]
    more: bool


def ask_apart(store: Store, query: str, confinement: Confinement) -> Lines:
    """Run a query as :func:`~halving.query.sql.ask_confined` does, in a process that is ended if need be.

    Raises:
        InvalidInput: the query is not accepted, or takes longer or more memory than it may.
        StoreError: the store cannot be read.
    """
    process = _take()
    try:
        failed, answer = process.ask((store, query, confinement), confinement)
    except BaseException:
        process.end()
        raise
    _put_back(process)
    if failed is not None:
        raise failed(answer)
    return Lines(*answer)


def prepare() -> None:
    """Start a process before the first query, which then need not wait for its imports."""
    _put_back(_take())


def lines_of(store: Store, query: str, confinement: Confinement) -> Lines:
    """Run a query in this process."""
    columns, rows, more = ask_confined(store, query, confinement)
    lines = [
        " | ".join(
            _cell(column, value) for column, value in zip(columns, _with_names(columns, row), strict=True)
        )
        for row in rows
    ]
    return Lines(" | ".join(clean(column, 20) for column in columns), lines, more)


class _Process:
    """A process that answers one query after another."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._family = Family(self._process.pid, with_itself=True)
        self._is_ready = False

    def ask(self, question: Any, confinement: Confinement) -> tuple[type[Exception] | None, Any]:
        """The answer to a question, and the kind of the error that it says, if it does."""
        if not self._is_ready:
            self._wait(_START_SECONDS, MAX_MEMORY_MB, confinement)
            self._read(confinement)
            self._is_ready = True
        stdin = self._process.stdin
        assert stdin is not None
        try:
            pickle.dump(question, stdin)
            stdin.flush()
        except BrokenPipeError:
            raise StoreError("the process for queries has ended: ask again") from None
        self._wait(confinement.seconds + GRACE_SECONDS, MAX_MEMORY_MB + confinement.memory_mb, confinement)
        failed, answer = self._read(confinement)
        return failed, answer

    def end(self) -> None:
        """End the process at once."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # A question was not read to its end.
                pipe.close()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _wait(self, seconds: float, memory_mb: int, confinement: Confinement) -> None:
        deadline = time.monotonic() + seconds
        stdout = self._process.stdout
        assert stdout is not None
        while not select.select([stdout], [], [], LOOK_SECONDS)[0]:
            if time.monotonic() > deadline:
                raise InvalidInput(
                    f"the query takes longer than {confinement.seconds:g} s: ask for less, and give project, "
                    "run and key in its WHERE"
                )
            if self._family.memory() > memory_mb << 20:
                raise _takes_too_much(confinement)

    def _read(self, confinement: Confinement) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except (EOFError, pickle.UnpicklingError):
            # The kernel ends it first where memory is short, and a query that nests too deeply ends it, too.
            raise _takes_too_much(confinement) from None


def _takes_too_much(confinement: Confinement) -> InvalidInput:
    return InvalidInput(
        f"the query takes more than {confinement.memory_mb} MB: ask for fewer rows and shorter texts, nest "
        "it less, or give run and key"
    )


_idle: list[_Process] = []
_lock = threading.Lock()
# A fork of this process must not ask its processes.
os.register_at_fork(after_in_child=_idle.clear)


def _take() -> _Process:
    while True:
        with _lock:
            if not _idle:
                break
            process = _idle.pop()
        if process.is_alive:
            return process
        process.end()
    return _Process()


def _put_back(process: _Process) -> None:
    with _lock:
        if len(_idle) < _MAX_IDLE:
            _idle.append(process)
            return
    process.end()


@atexit.register
def end_all() -> None:
    """End the processes that wait for a query."""
    with _lock:
        processes = list(_idle)
        _idle.clear()
    for process in processes:
        process.end()


def _with_names(columns: list[str], row: Any) -> list[Any]:
    """A row, in which the value of a param that is named like a secret is hidden."""
    values = list(row)
    if "name" in columns and "value" in columns:
        place = columns.index("value")
        values[place] = clean_value(str(values[columns.index("name")]), values[place])
    return values


def _cell(column: str, value: Any) -> str:
    if hasattr(value, "isoformat"):
        return str(value.isoformat())[:19]
    return clean_value(column, value)


def _main() -> None:
    """Answer questions from the standard input until it ends."""
    questions = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What libraries print must not be amid the answers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, whose end is this one's.
    goes_first()
    _send(answers, "ready")
    while True:
        try:
            store, query, confinement = pickle.load(questions)
        except EOFError:
            os._exit(0)  # At its end DuckDB's binding would complain of what it leaks.
        _send(answers, _answer_to(store, query, confinement))


def _answer_to(store: Store, query: str, confinement: Confinement) -> tuple[type[Exception] | None, Any]:
    try:
        return None, tuple(lines_of(store, query, confinement))
    except StoreError as error:
        return StoreError, str(error)
    except HalvingError as error:
        return InvalidInput, str(error)
    except RecursionError:
        return InvalidInput, "the query is not accepted: it nests too deeply"
    except MemoryError:
        return InvalidInput, str(_takes_too_much(confinement))
    except Exception:  # noqa: BLE001
        # Whoever asked says so in its log, and this process goes on.
        return RuntimeError, traceback.format_exc()


def _send(answers: Any, answer: Any) -> None:
    pickle.dump(answer, answers)
    answers.flush()


if __name__ == "__main__":
    _main()
