"""Forks of a process that has imported everything, instead of fresh processes for each measurement.

A quick run's figures mean nothing, and it would mostly import Torch, Dagster and the platform in each
process.
"""

import contextlib
import importlib
import io
import json
import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import context, forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from benchmarks.machine import CHECKOUT, ChildFailed, last_words
from tests.gangs import run_ranks
from tests.server.processes import server_of

METRICS = ["numpy", "halving.maintenance.compaction"]
EVERYTHING = [
    *METRICS,
    "torch",
    "torch.distributed.checkpoint",
    "halving.trial_process.preload_gang",
    "resources.backend",
    "resources.datasets.snapshots",
    "pipelines.sensors",
]

_CONTEXT: context.ForkServerContext = get_context("forkserver")


class Preloaded:
    """A process that has imported modules and starts others as its forks; the first of them starts it."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._server = forkserver.ForkServer()
        # The last takes all that is there from the garbage collector.
        self._server.set_forkserver_preload([*modules, __name__, "halving.trial_process.preload"])

    def replace(self, patch: pytest.MonkeyPatch) -> None:
        """Have the benchmarks' processes and servers be forks."""
        # Multiprocessing has one such process for all, which other tests use and which imports other modules.
        patch.setattr(forkserver, "connect_to_new_process", self._server.connect_to_new_process)
        patch.setattr(forkserver, "ensure_running", self._server.ensure_running)
        patch.setattr("benchmarks.machine.run_call", _call_in_fork)
        patch.setattr("benchmarks.server_process.server_process", _server_process)
        patch.setattr("benchmarks.gangs.torchrun", _torchrun)

    def stop(self) -> None:
        self._server._stop()  # type: ignore[attr-defined]


def _call_in_fork(function: str, arguments: str) -> Any:
    """As :func:`benchmarks.machine.run_call`."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _start(_answer, theirs, function, arguments)
    theirs.close()
    try:
        answer, complaint = ours.recv()
    except EOFError:
        process.join()
        raise ChildFailed(f"exit status {process.exitcode}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    if complaint:
        raise ChildFailed(last_words(complaint))
    return json.loads(answer)


@contextmanager
def _server_process(root: str) -> Iterator[tuple[int, int]]:
    """As :func:`benchmarks.server_process.server_process`."""
    with server_of(root) as server:
        yield server.pid, server.port


def _torchrun(processes: int, module: str, arguments: dict[str, Any]) -> Any:
    """As :func:`benchmarks.gangs.torchrun`."""
    return run_ranks(processes, _read_output, module, arguments)[0]


def _read_output(module: str, arguments: dict[str, Any]) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        importlib.import_module(module).main(**arguments)
    return json.loads(printed.getvalue() or "null")


def _start(target: Any, *arguments: Any) -> BaseProcess:
    process = _CONTEXT.Process(target=_in_environment, args=(dict(os.environ), target, arguments))
    process.start()
    return process


def _in_environment(environment: dict[str, str], target: Any, arguments: tuple[Any, ...]) -> None:
    os.setsid()  # what it starts ends with it
    os.chdir(CHECKOUT)
    os.environ.clear()
    os.environ.update(environment)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    target(*arguments)


def _answer(to: "Connection[Any, Any]", function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    try:
        to.send((json.dumps(getattr(importlib.import_module(module), name)(**json.loads(arguments))), ""))
    except Exception:  # noqa: BLE001  # whatever it is, the process that has asked says it
        to.send(("", traceback.format_exc()))
