"""Asking a checkpoint: its predictor or evaluator runs in a process of its own, which is ended at a limit of
time or memory.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import forkserver, get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from halving import Evaluation, Store
from halving.checkpoints.restoring import checkpoint_bytes
from halving.errors import HalvingError, InvalidInput, NotFound
from halving.records.memory_kills import MemoryKills
from resources.evaluation.answers import (
    Answer,
    Done,
    Evaluated,
    Failed,
    Figure,
    Message,
    Served,
    Unreadable,
    from_bytes,
)
from resources.evaluation.memory_limit import LOOK_SECONDS, Family, MostMemory, most_memory
from resources.evaluation.predictor_process import Question, answer
from resources.execution.main_module import start_without_main
from resources.sweep_spec.evaluation import EvaluationLimits

_END_SECONDS = 30.0
_LENGTH = 8
_AT_ONCE = 1 << 20
_MOST_BYTES = 2 << 30
# a checkpoint that is read once for all batches takes at most this part of the memory, beside its copy in
# each call
_KEPT = 4


class PredictionFailed(HalvingError, RuntimeError):
    """The predictor or evaluator raised, was ended at a limit, or did not return what it must."""


@dataclass(frozen=True)
class Answered:
    """What came back: an evaluator's evaluation (:class:`halving.Evaluation`) and figures, or what serving a
    predictor costs.
    """

    evaluation: Evaluation | None
    figures: list[Figure]
    serving: dict[str, Any] | None


def ask(
    question: Question, limits: EvaluationLimits, take: Callable[[Answer], None] = lambda _: None
) -> Answered:
    """Run a predictor or an evaluator within its limits; what serving costs is measured in a second process,
    which only serves.

    Args:
        take: is given a predictor's answer for each batch of the rows, in their order, as it comes; what it
            raises ends the process.

    Raises:
        PredictionFailed: naming the function, and what it raised or the limit that it met.
    """
    most = most_memory(limits.memory, "evaluation_limits.memory")
    last = _sent(replace(question, kept_bytes=most.memory // _KEPT), limits, most, take)
    match last:
        case Evaluated():
            return Answered(last.evaluation, last.figures, None)
        case Done():
            return Answered(None, [], _serving(question, limits, most))
        case _:
            raise PredictionFailed(f"{question.field} {question.function} sent no answer")


def _serving(question: Question, limits: EvaluationLimits, most: MostMemory) -> dict[str, Any]:
    """What serving costs, as the report has it; it has predicted, so it can be judged also where that cannot
    be measured.
    """
    served = Served()
    if question.serving_seconds:
        try:
            sent = _sent(question, limits, most)
            served = sent if isinstance(sent, Served) else Served(error="it sent no cost of serving")
        except PredictionFailed as error:
            served = Served(error=str(error))
    return {"checkpoint_bytes": _checkpoint_bytes(question), **served.__dict__}


def _checkpoint_bytes(question: Question) -> int | None:
    """The checkpoint's size; None where there is none, which a predictor that restores nothing can do
    without.
    """
    with suppress(InvalidInput, NotFound):  # it is no digest
        return checkpoint_bytes(Store(question.root), question.checkpoint)
    return None


def _sent(
    question: Question,
    limits: EvaluationLimits,
    most: MostMemory,
    take: Callable[[Answer], None] | None = None,
) -> Message:
    """The last message of a process that is started for it.

    Args:
        take: of the answers before that; None: the process measures what serving costs, and sends no answers.

    Raises:
        PredictionFailed: it raised, met a limit, ended without a word, or sent what is no message.
    """
    ours, theirs = get_context("forkserver").Pipe()
    with _fork_server(question.function) as server:
        process = server.Process(
            target=answer, args=(question, theirs, take is None), name=question.function, daemon=False
        )
        memory = MemoryKills()
        start_without_main(process)
    theirs.close()
    try:
        for content in _received(process, ours, question, limits, most, memory):
            message = from_bytes(content)
            if take is None or not isinstance(message, Answer):
                break
            take(message)
    except Unreadable as error:
        raise PredictionFailed(f"{question.field} {question.function}: {error}") from error
    finally:
        ours.close()
        _end(process)
    if isinstance(message, Failed):
        raise PredictionFailed(message.reason)
    return message


@contextmanager
def _fork_server(function: str) -> Iterator[Any]:
    """The fork server of this process; the first to use it decides what it holds ready."""
    server = get_context("forkserver")
    imports = ["resources.execution.drop_credentials", "resources.evaluation.predictor_process"]
    server.set_forkserver_preload([*imports, function.partition(":")[0]])
    # Until Python 3.13 the fork server ignores the sys.path that it is sent (python/cpython#117378); the
    # variable does reach it.
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        forkserver.ensure_running()
        yield server
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _received(
    process: Any,
    connection: Connection,
    question: Question,
    limits: EvaluationLimits,
    most: MostMemory,
    memory: MemoryKills,
) -> Iterator[bytearray]:
    """The bytes of each message that it sends, without an end.

    Neither the length that one announces nor one that is not whole can make this wait or grow.

    Raises:
        PredictionFailed: it met a limit, or ended without a word more.
    """
    title = f"{question.field} {question.function}"
    until = time.monotonic() + limits.seconds
    family = Family(process.pid)
    message = _Incoming(connection.fileno())
    before = 0
    while True:
        ready = wait([connection, process.sentinel], LOOK_SECONDS)
        if connection in ready:
            message.read()
            if (size := before + message.size) > _MOST_BYTES:
                raise PredictionFailed(
                    f"{title} returned {size >> 20}Mi, more than the {_MOST_BYTES >> 20}Mi that are accepted"
                )
            if message.whole:
                yield message.content
                message = _Incoming(connection.fileno())
                before = size
        if message.ended or (process.sentinel in ready and connection not in ready):
            process.join()
            raise PredictionFailed(f"{title} {_how_it_ended(process.exitcode, memory)}")
        if time.monotonic() > until:
            raise PredictionFailed(
                f"{title} was ended after {limits.seconds:g} seconds without an answer, the limit "
                "evaluation_limits.seconds: "
                "look for what it waits for, or raise the limit"
            )
        if (held := family.memory()) > most.memory:
            raise PredictionFailed(
                f"{title} was {most.exceeded(held)}: have it go through the rows in batches, or raise the "
                "limit"
            )


class _Incoming:
    """A message as far as it has come: eight bytes with its length, and the content."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._length = bytearray()
        self.content = bytearray()
        self.ended = False

    @property
    def size(self) -> int:
        """The content's length; 0 until that has come."""
        return int.from_bytes(self._length, "big") if len(self._length) == _LENGTH else 0

    @property
    def whole(self) -> bool:
        return len(self._length) == _LENGTH and len(self.content) == self.size

    def read(self) -> None:
        """Take what is there, at most as much as is missing."""
        filled, wanted = (self._length, _LENGTH) if len(self._length) < _LENGTH else (self.content, self.size)
        try:
            some = os.read(self._descriptor, min(wanted - len(filled), _AT_ONCE))
        except ConnectionResetError:
            some = b""
        filled += some
        self.ended = not some


def _how_it_ended(code: int | None, memory: MemoryKills) -> str:
    if code is not None and code < 0:
        return (
            f"was killed by {signal.Signals(-code).name}{memory.reason() if code == -signal.SIGKILL else ''}"
        )
    return f"ended its process with exit code {code} and without an answer"


def _end(process: Any) -> None:
    """Wait until it has ended what it started, which it does as soon as the connection is closed."""
    process.join(_END_SECONDS)
    if process.is_alive():  # something below it cannot be ended, such as what waits for a dead disk
        process.kill()
        process.join()
    process.close()
