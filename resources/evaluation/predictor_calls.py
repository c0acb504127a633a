"""Running a checkpoint's predictor or evaluator in a process of its own, with limits of time and memory."""

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
from resources.evaluation.memory_limit import LOOK_SECONDS, Family, MemoryLimit, memory_limit_of
from resources.evaluation.predictor_messages import (
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
from resources.evaluation.predictor_process import Question, answer
from resources.execution.main_module import start_without_main
from resources.sweep_spec.evaluation import EvaluationLimits

_END_SECONDS = 30.0
_LENGTH = 8
_AT_ONCE = 1 << 20
_MAX_BYTES = 2 << 30
# A checkpoint that is read once for all batches takes at most this part of the memory, beside its copy in
# each call.
_KEPT = 4


class PredictionFailed(HalvingError, RuntimeError):
    """Raised when a predictor or evaluator raises, meets a limit, or does not return what it must."""


@dataclass(frozen=True)
class CallResult:
    """The result of a call: an evaluator's evaluation and figures, or what serving a predictor costs."""

    evaluation: Evaluation | None
    figures: list[Figure]
    serving: dict[str, Any] | None


def call_function(
    question: Question, limits: EvaluationLimits, take: Callable[[Answer], None] = lambda _: None
) -> CallResult:
    """Run a predictor or an evaluator within its limits.

    What serving costs is measured in a second process, which only serves.

    Args:
        take: called with a predictor's answer for each batch of the rows, in their order, as it comes. If it
            raises, the process is ended.

    Raises:
        PredictionFailed: naming the function, and what it raised or the limit that it met.
    """
    limit = memory_limit_of(limits.memory, "evaluation_limits.memory")
    last = _run_process(replace(question, kept_bytes=limit.memory // _KEPT), limits, limit, take)
    match last:
        case Evaluated():
            return CallResult(last.evaluation, last.figures, None)
        case Done():
            return CallResult(None, [], _measure_serving(question, limits, limit))
        case _:
            raise PredictionFailed(f"{question.field} {question.function} sent no answer")


def _measure_serving(question: Question, limits: EvaluationLimits, limit: MemoryLimit) -> dict[str, Any]:
    """Measure what serving costs, in the form of the report.

    An error is a part of the result, because a checkpoint that has predicted can be judged without it.
    """
    served = Served()
    if question.serving_seconds:
        try:
            message = _run_process(question, limits, limit)
        except PredictionFailed as error:
            message = Served(error=str(error))
        served = Served(error="it sent no measurement of serving")
        if isinstance(message, Served):
            served = message
    return {"checkpoint_bytes": _checkpoint_bytes(question), **served.__dict__}


def _checkpoint_bytes(question: Question) -> int | None:
    """The checkpoint's size; None without one, as for a predictor that restores nothing."""
    with suppress(InvalidInput, NotFound):  # it is no digest
        return checkpoint_bytes(Store(question.root), question.checkpoint)
    return None


def _run_process(
    question: Question,
    limits: EvaluationLimits,
    limit: MemoryLimit,
    take: Callable[[Answer], None] | None = None,
) -> Message:
    """Run the function in a process of its own, and return the last message of that process.

    Args:
        take: called with each answer before the last message. If it is None, the process measures what
            serving costs and sends no answers.

    Raises:
        PredictionFailed: it raised, met a limit, ended without a message, or sent what is no message.
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
        for content in _receive(process, ours, question, limits, limit, memory):
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
    """The fork server of this process; its first user decides which modules it has imported."""
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


def _receive(
    process: Any,
    connection: Connection,
    question: Question,
    limits: EvaluationLimits,
    limit: MemoryLimit,
    memory: MemoryKills,
) -> Iterator[bytearray]:
    """Receive the messages of a process as bytes, until the caller stops or an error is raised.

    Neither a wrong length nor an incomplete message can make this wait or use memory without a limit.

    Raises:
        PredictionFailed: it met a limit, or ended without another message.
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
            size = before + message.size
            if size > _MAX_BYTES:
                raise PredictionFailed(
                    f"{title} returned {size >> 20}Mi, more than the {_MAX_BYTES >> 20}Mi that are accepted"
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
                "evaluation_limits.seconds: look for what it waits for, or raise the limit"
            )
        held = family.memory()
        if held > limit.memory:
            raise PredictionFailed(
                f"{title} was {limit.excess(held)}: have it go through the rows in batches, or "
                "raise the limit"
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
        """The content's length; 0 until the length has come."""
        if len(self._length) < _LENGTH:
            return 0
        return int.from_bytes(self._length, "big")

    @property
    def whole(self) -> bool:
        return len(self._length) == _LENGTH and len(self.content) == self.size

    def read(self) -> None:
        """Read the bytes that have come, but none beyond the end of this message."""
        filled = self.content
        wanted = self.size
        if len(self._length) < _LENGTH:
            filled = self._length
            wanted = _LENGTH
        try:
            some = os.read(self._descriptor, min(wanted - len(filled), _AT_ONCE))
        except ConnectionResetError:
            some = b""
        filled += some
        self.ended = not some


def _how_it_ended(code: int | None, memory: MemoryKills) -> str:
    if code is not None and code < 0:
        reason = ""
        if code == -signal.SIGKILL:
            reason = memory.reason()
        return f"was killed by {signal.Signals(-code).name}{reason}"
    return f"ended its process with exit code {code} and without an answer"


def _end(process: Any) -> None:
    """Wait until a process and its children have ended, as they do once the connection is closed."""
    process.join(_END_SECONDS)
    if process.is_alive():  # a process below it cannot be ended, such as one that waits for a dead disk
        process.kill()
        process.join()
    process.close()
