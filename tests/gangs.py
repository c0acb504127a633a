"""Gangs of real processes, for tests of what ranks do together, over gloo on the CPU.

They are forked from a server that has imported what they need and computed nothing. A fork of a test's own
process hangs where an earlier test has used torch's threads: none of them is there in the child, which waits
for them.
"""

import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from halving.distributed.ranks import ALONE, Gang, Ranks
from halving.trial.context import TrialContext
from halving.trial.messages import Granted, Message
from halving.trial_process.gang import run_gang as run_gang_of_trial
from halving.trial_process.main import run_trial
from tests.ports import free_port

SERVER = multiprocessing.get_context("forkserver")
_PRELOADED = [
    "pytest",
    "torch",
    "halving.trial_process.preload_gang",
    "halving.trial_process.preload",
    "tests.gangs",
]
# where a test has imported them
_FRAMEWORKS = ["accelerate", "lightning", "lightning.pytorch", "lightning.fabric", "transformers"]
_COLLECTIVE_SECONDS = 120.0
_LONGEST_SECONDS = 540.0  # pytest's own limit, 600, would end the test without what the ranks have printed


class RankFailed(Exception):
    """A rank has not ended as it should; the others were killed, as those of a real gang are.

    Says what each has printed.
    """


def start(target: Callable[..., object], *arguments: Any, output: Path | None = None) -> BaseProcess:
    """Call a function in a process of its own with this one's environment and one thread.

    Its children are its own matter.

    Args:
        output: a file for what it prints.
    """
    SERVER.set_forkserver_preload([*_PRELOADED, *(name for name in _FRAMEWORKS if name in sys.modules)])
    with pytest.MonkeyPatch.context() as patch:
        # Until Python 3.13 the server ignores the sys.path that it is sent (python/cpython#117378); the
        # variable does reach it.
        patch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("OPENBLAS_NUM_THREADS", "1")  # NumPy's, which begin when it is imported
        forkserver.ensure_running()
    process = SERVER.Process(
        target=_in_environment, args=(dict(os.environ), output and str(output), target, arguments)
    )
    process.start()
    return process


def _in_environment(
    environment: dict[str, str], output: str | None, target: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    import torch

    os.environ.clear()
    os.environ.update(environment)  # the server is as old as the first test that has used it
    torch.set_num_threads(1)
    if output is not None:
        with Path(output).open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    target(*arguments)


def run_gang(
    world_size: int, body: Callable[..., Any], *arguments: Any, killed: int | None = None
) -> list[Any]:
    """Call ``body(ranks, *arguments)`` on each rank of a process group; return its results, by rank.

    Args:
        killed: a rank that ends by SIGKILL; it returns None.

    Raises:
        RankFailed: another rank raised or ended; the first that was heard of.
    """
    with tempfile.TemporaryDirectory() as folder:
        group = f"{folder}/group"
        return _run_together(
            [partial(_in_group, group, rank, world_size, body, arguments) for rank in range(world_size)],
            killed,
        )


def _in_group(
    group: str, rank: int, world_size: int, body: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    import torch.distributed as dist

    within = timedelta(seconds=_COLLECTIVE_SECONDS)
    dist.init_process_group(
        "gloo", init_method=Path(group).as_uri(), rank=rank, world_size=world_size, timeout=within
    )
    ranks: Ranks = Gang(rank, world_size, rank, timeout=_COLLECTIVE_SECONDS) if world_size > 1 else ALONE
    return body(ranks, *arguments)


def run_ranks(world_size: int, body: Callable[..., Any], *arguments: Any) -> list[Any]:
    """Call ``body(*arguments)`` in processes with torchrun's environment; return its results, by rank.

    Raises:
        RankFailed: as for :func:`run_gang`.
    """
    port = free_port()
    return _run_together(
        [partial(_as_from_torchrun, rank, world_size, port, body, arguments) for rank in range(world_size)]
    )


def _as_from_torchrun(
    rank: int, world_size: int, port: int, body: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_WORLD_SIZE=str(world_size)
    )
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="test")
    return body(*arguments)


def run_in_gang(
    context: TrialContext, trainable: str, processes: int, granted: int, *answers: Granted
) -> tuple[list[Message], int | None]:
    """Train a trial's attempt as a worker does, in one process or by torchrun's agent and its ranks.

    The platform's answers wait in the pipe.

    Returns:
        All that the platform heard, and the exit status.
    """
    platform, own = SERVER.Pipe()
    for answer in answers:
        platform.send(answer)
    with tempfile.TemporaryDirectory() as folder:
        printed = Path(folder, "printed")
        arguments = (context, trainable, granted, own, 1)
        agent = (
            start(run_trial, *arguments, output=printed)
            if processes == 1
            else start(run_gang_of_trial, *arguments, processes, output=printed)
        )
        own.close()
        heard: list[Message] = []
        try:
            while platform.poll(_LONGEST_SECONDS):
                heard.append(platform.recv())
        except (EOFError, ConnectionResetError):
            agent.join()
        finally:
            agent.kill()  # its ranks end with it
            print(printed.read_text())  # pytest shows it where the test fails
    return heard, agent.exitcode


def _run_together(bodies: list[Callable[[], Any]], killed: int | None = None) -> list[Any]:
    """Call each in a process of its own; as soon as one does not end as it should, all are killed."""
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder, f"rank-{rank}") for rank in range(len(bodies))]
        ranks: list[tuple[BaseProcess, Connection]] = []
        try:
            for body, output in zip(bodies, printed, strict=True):
                pipe, end = SERVER.Pipe(duplex=False)
                ranks.append((start(_answer, body, end, output=output), pipe))
                end.close()
            return _answers(ranks, killed)
        except RankFailed as failed:
            raise RankFailed("\n".join([str(failed), *_all_of(printed)])) from None
        finally:
            for process, _ in ranks:
                process.kill()
                process.join()


def _answer(body: Callable[[], Any], end: Connection) -> None:
    end.send(body())
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()  # no rank ends while another may still want something of it: the test kills all


def _answers(ranks: list[tuple[BaseProcess, Connection]], killed: int | None) -> list[Any]:
    answers: dict[int, Any] = {}
    deadline = time.monotonic() + _LONGEST_SECONDS
    while missing := [rank for rank in range(len(ranks)) if rank not in answers]:
        waited_for = [part for rank in missing for part in (ranks[rank][1], ranks[rank][0].sentinel)]
        if not wait(waited_for, max(deadline - time.monotonic(), 0)):
            raise RankFailed(f"ranks {missing} have not ended within {_LONGEST_SECONDS:g} s")
        for rank in missing:
            process, pipe = ranks[rank]
            ended = not process.is_alive()  # asked first: what it has sent before is in the pipe
            try:
                if pipe.poll():
                    answers[rank] = pipe.recv()
                    continue
            except EOFError:
                process.join()
                ended = True
            if ended and rank == killed and process.exitcode == -signal.SIGKILL:
                answers[rank] = None
            elif ended:
                raise RankFailed(f"rank {rank} ended with status {process.exitcode}")
    return [answers[rank] for rank in range(len(ranks))]


def _all_of(printed: list[Path]) -> list[str]:
    return [f"rank {rank} printed:\n{path.read_text()}" for rank, path in enumerate(printed) if path.exists()]
