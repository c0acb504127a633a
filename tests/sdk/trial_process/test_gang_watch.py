"""What watches a gang of real ranks.

Where one does not come to a collective, the end names that rank, the collective, and where every rank was;
where one is slow, its samples say so.
"""

import ctypes
import os
import signal
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from halving import Run, Store
from halving.query.curve_stats import keys_of, read_curve
from halving.trial.messages import Granted, Raised, ReachedRung, Stopped
from halving.trial_process.gang import run_gang
from halving.trial_process.rank_stacks import main_stack
from tests.gangs import SERVER, start
from tests.sdk.trial_process.attempts import context

TIMEOUT = 4.0
CASES = {"sleeps": 0, "is stopped": 1, "holds the interpreter": 1}


def hang(run: Run) -> None:
    from torch import ones
    from torch.distributed import all_reduce

    for epoch in run.epochs():
        if epoch == 2 and run.rank == run.params["rank"]:
            how = run.params["how"]
            if how == "sleeps":
                time.sleep(1000)
            elif how == "is stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            else:
                ctypes.PyDLL(None).sleep(1000)
        if run.params["how"] != "sleeps":
            all_reduce(ones(2))
        run.report(score=float(epoch))
        run.save(epoch=epoch)


def dawdle(run: Run) -> None:
    for epoch in run.epochs():
        if run.rank == 1:
            time.sleep(0.7)
        run.log({"own": run.rank, "in": {"a dict": epoch}}, step=epoch, all_ranks=True)
        run.log({"first": run.rank}, step=epoch)
        run.report(score=float(epoch))
        run.save(epoch=epoch)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Store]:
    return {case: Store(tmp_path_factory.mktemp("store")) for case in [*CASES, "dawdles"]}


@pytest.fixture(scope="module")
def ends(stores: dict[str, Store]) -> dict[str, Any]:
    """How a gang of two ended for each case; they are run at once."""
    heard: dict[str, tuple[Any, Connection]] = {}
    for how, store in stores.items():
        trial = replace(
            context(store, how=how, rank=CASES.get(how)), resources={"collective_timeout_seconds": TIMEOUT}
        )
        ours, theirs = SERVER.Pipe()
        body, epochs = ("dawdle", 4) if how == "dawdles" else ("hang", 3)
        process = start(run_gang, trial, f"{__name__}:{body}", epochs, theirs, 1, 2)
        theirs.close()
        heard[how] = process, ours
    messages = {}
    for how, (process, ours) in heard.items():
        messages[how] = ours.recv()
        if isinstance(messages[how], ReachedRung):
            ours.send(Granted(messages[how].epoch, complete=True))
            messages[how] = ours.recv()
        process.join()
    return messages


@pytest.mark.slow  # six processes with torch
@pytest.mark.parametrize("how", CASES)
def test_a_missing_rank_is_named_with_the_collective_and_every_ranks_stack(
    ends: dict[str, Any], how: str
) -> None:
    end = ends[how]
    absent = CASES[how]
    assert isinstance(end, Raised), end
    assert not end.final, "it is tried again"
    collective = (
        "run.report()" if how == "sleeps" else "all_reduce (collective 2 of the process group default_pg)"
    )
    short = end.error.splitlines()[-1]
    assert short.startswith(
        f"rank {absent} did not come to {collective} within 4 s (resources.collective_timeout_seconds); "
    )
    assert f"rank {1 - absent} had waited there since" in short
    lost, waited = end.error.split(f"rank {1 - absent} (waited):")
    assert f"rank {absent} (did not come):" in lost
    assert ("was stopped by a signal (SIGSTOP)" in lost) == (how == "is stopped")
    for stack in (lost, waited):
        first = next(line for line in stack.splitlines() if "File " in line)
        assert Path(__file__).name in first, "a stack begins in the trainable"
        assert "in hang" in first


@pytest.mark.slow  # as above
def test_every_ranks_points_are_the_runs_and_who_waits_for_others_says_so(
    ends: dict[str, Any], stores: dict[str, Store]
) -> None:
    assert ends["dawdles"] == Stopped()
    store = stores["dawdles"]
    run = ("p", "s.0001")

    def values(key: str) -> list[float]:
        return list(read_curve(store, *run, key).value.tolist())

    assert values("own/rank.0") == [0.0] * 4
    assert values("own/rank.1") == [1.0] * 4
    assert values("in/a dict/rank.1") == [1.0, 2.0, 3.0, 4.0]
    assert values("first") == [0.0] * 4, "without all_ranks, rank 0's alone"
    assert "first/rank.1" not in keys_of(store, *run)
    assert values("system/memory/process/rank.1")
    assert max(values("system/collectives")) > 0, "rank 0 has waited for rank 1"
    assert values("system/collectives/rank.1")
    assert values("system/saves")


def test_faulthandlers_dump_gives_the_main_threads_stack_from_the_trainable_on() -> None:
    dump = (
        "0x00007f0000000001\n"
        'Thread 0x00007f0000000002 (most recent call first):\n  File "a.py", line 1 in other\n\n'
        "Current thread 0x00007f0000000001 (most recent call first):\n"
        '  File "train.py", line 9 in step\n  File "train.py", line 3 in train\n'
        '  File "/x/halving/trial_process/main.py", line 96 in train_trial\n'
    )
    assert main_stack(dump) == '  File "train.py", line 3 in train\n  File "train.py", line 9 in step'
    assert main_stack("0x00007f0000000001\n") == ""
    assert main_stack("") == ""
