"""The process in which a predictor or an evaluator runs; it sends the results, or what serving costs.

A predictor is called with one batch of rows at a time, so that memory is bounded however many rows there are.

The process's parent waits for its end, and then ends everything that it has started. The module imports
little, because a fork server imports it in advance. The other end of the connection is in
:mod:`resources.evaluation.predictor_calls`.
"""

import ctypes
import math
import os
import signal
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from halving import Dataset, Store, TrainedRun
from halving.checkpoints.restoring import checkpoint_bytes, saved_state
from halving.errors import InvalidInput
from halving.models.loaded_run import restore_copies
from halving.run.evaluation import Evaluation
from halving.store.retry import retry_while_unavailable
from halving.trial.import_string import import_function, where
from resources.evaluation.columns import Coded, encode
from resources.evaluation.memory_limit import goes_first
from resources.evaluation.predictor_messages import (
    PLOTLY,
    VALUE_TYPES,
    Answer,
    Done,
    Evaluated,
    Failed,
    Figure,
    Message,
    Served,
    to_bytes,
)

_MAX_CALLS = 200
_MIN_CALLS = 5
_PR_SET_CHILD_SUBREAPER = 36
_MAX_ROWS = 1 << 16  # of a batch
_MAX_BYTES = 64 << 20  # of a batch


@dataclass(frozen=True)
class Question:
    """The call of a checkpoint's predictor or evaluator.

    Attributes:
        field: ``predictor`` or ``evaluator``.
        function: the function's import string, ``module:function``.
        dataset: the name and the digest of the snapshot, and the splits that are its train split.
        rows: a file with the predictor's table (Arrow IPC); None for an evaluator.
        serving_seconds: for how long calls with one row, and with a batch, are timed; 0 if they are not.
        numbers: whether the target is judged as a number; a prediction that is no number then becomes NaN.
        kept_bytes: the largest size of a checkpoint that is read once for all batches after the first.
    """

    field: str
    function: str
    root: str
    dataset: tuple[str, str, tuple[str, ...]]
    params: dict[str, Any]
    checkpoint: str
    split: str
    rows: str | None
    serving_seconds: float
    serving_batch: int
    numbers: bool = False
    kept_bytes: int = 0


class RunOfBatches(TrainedRun):
    """A run whose predictor is called batch by batch, with a small checkpoint read once for many calls.

    Attributes:
        kept_bytes: the size up to which a checkpoint is read only once.
    """

    kept_bytes = 0
    _kept: dict[str, Any] | None = None

    def restore(self, **state: Any) -> dict[str, Any]:
        if self._kept is None:
            if checkpoint_bytes(self.store, self.checkpoint) > self.kept_bytes:
                return super().restore(**state)
            read = partial(saved_state, self.store, self.checkpoint)
            self._kept = retry_while_unavailable(self.store, f"restore() of {self.checkpoint}", read)
        return restore_copies(self._kept, state)


class TimedRun(TrainedRun):
    """A run that counts the seconds that its predictor spends on restoring the checkpoint."""

    seconds_restoring = 0.0

    def restore(self, **state: Any) -> dict[str, Any]:
        began = time.perf_counter()
        try:
            return super().restore(**state)
        finally:
            self.seconds_restoring += time.perf_counter() - began


def answer(question: Question, connection: Connection, serving: bool) -> None:
    """Run the function in a child process, and end with the child's exit code and all that it has started.

    It also ends when the other end of the connection is closed, as when the asking process ends.

    Args:
        serving: whether to measure what serving costs, and to send that instead of the function's results.
    """
    os.setsid()
    with suppress(AttributeError, OSError):
        # On Linux this process becomes the parent of processes that lose theirs (prctl(2)).
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    worker = os.fork()
    if worker == 0:
        _work(question, connection, serving)
    threading.Thread(
        target=_end_with_asker, args=(connection, worker), daemon=True, name="halving-asker"
    ).start()
    status = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    _end_children()
    if status < 0:
        with suppress(OSError):  # SIGKILL has no handler to reset
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def _work(question: Question, connection: Connection, serving: bool) -> NoReturn:
    code = 1
    try:
        os.setsid()
        goes_first()
        for message in messages(question, serving):
            _send(connection, to_bytes(message))
        code = 0
    except SystemExit as error:
        if isinstance(error.code, int):
            code = error.code
    except BaseException:  # noqa: BLE001  # it must not return into its parent's code
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _end_with_asker(connection: Connection, worker: int) -> None:
    with suppress(EOFError, OSError):
        connection.recv_bytes()  # returns when the other end is closed, as nothing is ever sent here
    with suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)


def _end_children() -> None:
    """End all processes below this one; when one ends, this process becomes the parent of its children."""
    import psutil

    with suppress(ChildProcessError):  # there are no more
        while True:
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    process.kill()
            os.waitpid(-1, 0)


def _send(connection: Connection, content: bytes) -> None:
    for some in (len(content).to_bytes(8, "big"), content):
        rest = memoryview(some)
        while rest:
            rest = rest[os.write(connection.fileno(), rest) :]


def messages(question: Question, serving: bool) -> Iterator[Message]:
    """The messages with the function's results, for a predictor one of each batch; or with serving's cost."""
    try:
        function = _import_function(question)
        dataset = Dataset(Store(question.root), *question.dataset)
        about: dict[str, Any] = {
            "params": question.params,
            "dataset": dataset,
            "checkpoint_digest": question.checkpoint,
        }
        if question.rows is None:
            yield _message_of(question, function(TrainedRun(dataset.store, **about), question.split))
        elif serving:
            with pa.ipc.open_file(pa.memory_map(question.rows)) as reader:
                yield _measure_cost(question, TimedRun(dataset.store, **about), function, reader.read_all())
        else:
            yield from _predict(question, RunOfBatches(dataset.store, **about), function)
    except InvalidInput as error:
        yield Failed(str(error))
    except Exception as error:  # noqa: BLE001  # a user's function may raise anything
        yield Failed(
            f"{question.field} {question.function} raised {type(error).__name__} at {where(error)}: {error}"
        )


def _predict(question: Question, run: RunOfBatches, function: Callable[..., Any]) -> Iterator[Message]:
    rows = 0
    with pa.ipc.open_file(pa.memory_map(question.rows)) as reader:
        for table in _batches(reader):
            answer = _answer_of(question, function(run, table))
            if len(answer) != table.num_rows:
                place = ""
                if rows:
                    place = f" (rows {rows:,} to {rows + table.num_rows - 1:,})"
                raise InvalidInput(
                    f"predictor {question.function} returned {len(answer)} predictions for "
                    f"{table.num_rows} rows{place}; return one a row"
                )
            yield answer
            rows += table.num_rows
            # Only from the second batch on, so that for a single batch restore() reads what it is asked for.
            run.kept_bytes = question.kept_bytes
    yield Done(rows)


def _batches(reader: pa.RecordBatchFileReader) -> Iterator[pa.Table]:
    """The rows of a file in tables of bounded rows and bytes; a single row may be larger."""
    parts = list[pa.RecordBatch]()
    rows = 0
    size = 0
    for number in range(reader.num_record_batches):
        rest = reader.get_batch(number)
        while rest.num_rows:
            part = _beginning(rest, _MAX_ROWS - rows, _MAX_BYTES - size)
            if part.num_rows:
                parts.append(part)
                rows += part.num_rows
                size += part.nbytes
                rest = rest.slice(part.num_rows)
            if rest.num_rows:
                if not parts:
                    parts.append(rest.slice(0, 1))
                    rest = rest.slice(1)
                yield pa.Table.from_batches(parts)
                parts = list[pa.RecordBatch]()
                rows = 0
                size = 0
    if parts:
        yield pa.Table.from_batches(parts)


def _beginning(batch: pa.RecordBatch, rows: int, size: int) -> pa.RecordBatch:
    """The first rows of a batch that fit into a size in bytes: all, or as few as halving them gives."""
    beginning = batch.slice(0, rows)
    while beginning.num_rows and beginning.nbytes > size:
        beginning = beginning.slice(0, beginning.num_rows // 2)
    return beginning


def _import_function(question: Question) -> Callable[..., Any]:
    try:
        return import_function(question.field, question.function)
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(
            f"{question.field} {question.function} cannot be imported: {type(error).__name__} at "
            f"{where(error)}: {error}"
        ) from error


def _answer_of(question: Question, returned: Any) -> Answer:
    """A predictor's result as an answer, whose values have none of its library's types."""

    def to_value(value: Any) -> Any:
        if hasattr(value, "item"):
            value = value.item()
        elif isinstance(value, pa.Scalar):
            value = value.as_py()
        if type(value) not in VALUE_TYPES:
            raise InvalidInput(
                f"predictor {question.function} returned a {type(value).__name__}: return texts, numbers "
                "or booleans"
            )
        return value

    if isinstance(returned, Mapping):
        if not returned:
            raise InvalidInput("the predictor returned an empty dict; give the probabilities of each class")
        classes = tuple(to_value(label) for label in returned)
        probabilities = np.column_stack([np.asarray(column, np.float64) for column in returned.values()])
        return Answer(None, probabilities, classes)
    is_nested = isinstance(returned, list | tuple) and returned and isinstance(returned[0], list | tuple)
    if getattr(returned, "ndim", 1) == 2 or is_nested:
        return Answer(None, np.asarray(returned, np.float64))
    if isinstance(returned, np.ndarray):
        kind = returned.dtype.kind
        if kind == "f" or (question.numbers and kind in "iub"):
            return Answer(returned.astype(np.float64))
        if kind in "iubU":
            values, codes = np.unique(returned, return_inverse=True)
            return Answer(Coded(values.tolist(), codes.astype(np.int32)))
        returned = returned.tolist()
    elif isinstance(returned, pa.Array | pa.ChunkedArray):
        returned = returned.to_pylist()
    column = encode(map(to_value, returned))
    if question.numbers:
        return Answer(np.array(list(map(_number, column.values)), np.float64)[column.codes])
    return Answer(column)


def _number(value: Any) -> float:
    """The value as a float; NaN if it is no number, so that there is a report to look at."""
    if isinstance(value, int | float):
        return float(value)
    return math.nan


def _message_of(question: Question, returned: Any) -> Evaluated:
    if not isinstance(returned, Evaluation):
        raise InvalidInput(
            f"evaluator {question.function} returned a {type(returned).__name__}; return "
            "halving.Evaluation(metrics=…, scores=…)"
        )
    figures = []
    for title, figure in returned.figures.items():
        if getattr(figure, "kind", None) == "image":
            figures.append(Figure(title, figure.media_type, figure.encode()))
        else:
            figures.append(Figure(title, PLOTLY, figure.to_json().encode()))
    return Evaluated(returned, figures)


def _measure_cost(question: Question, run: TimedRun, function: Callable[..., Any], table: pa.Table) -> Served:
    """Measure latencies, and the peak memory of this process, which opens only the rows that it serves."""
    latencies: dict[str, Any] = {}
    try:
        for name, rows in (("one_row", 1), ("batch", min(question.serving_batch, table.num_rows))):
            latencies[name] = _latency(run, function, table, rows, question.serving_seconds)
    except Exception as error:  # noqa: BLE001  # a user's function may raise anything
        return Served(**latencies, error=f"{type(error).__name__} at {where(error)}: {error}")
    return Served(**latencies, peak_memory_bytes=_peak_memory())


def _latency(
    run: TimedRun, function: Callable[..., Any], table: pa.Table, rows: int, seconds: float
) -> dict[str, Any]:
    function(run, table.slice(0, rows))  # warms up for this shape
    latencies = list[float]()
    restoring = list[float]()
    until = time.perf_counter() + seconds
    while len(latencies) < _MIN_CALLS or (len(latencies) < _MAX_CALLS and time.perf_counter() < until):
        batch = table.slice(len(latencies) * rows % (table.num_rows - rows + 1), rows)
        run.seconds_restoring = 0.0
        began = time.perf_counter()
        function(run, batch)
        latencies.append(1000 * (time.perf_counter() - began))
        restoring.append(1000 * run.seconds_restoring)
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    return {
        "rows": rows,
        "calls": len(latencies),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "restore_ms": statistics.median(restoring),
    }


def _peak_memory() -> int | None:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return None
