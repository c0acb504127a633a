"""``halving import wandb --follow`` as a process: signals, kills, and what W&B itself writes."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from halving import Store
from halving.query.runs import read_run
from tests.sdk.imports.followers import GrowingLog
from tests.sdk.imports.wandb_files import (
    documents,
    ends_of,
    exit_record,
    history_record,
    log_of,
    logged_of,
    run_record,
)
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

STEPS = 400
RECORDS = [
    run_record("a"),
    *(history_record(step, {"loss": step, "note": f"step {step}"}) for step in range(STEPS)),
    exit_record(0),
]


class Followers:
    """Processes that follow a source."""

    def __init__(self, root: str) -> None:
        self._command = [sys.executable, "-m", "halving.cli.main", "import", "--root", root, "--follow"]
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, source: Path, *more: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*self._command, "wandb", str(source), *more],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    path = tmp_path / "wandb" / "offline-run-20231114_221320-a" / "run-a.wandb"
    return GrowingLog(path, log_of(RECORDS))


@pytest.fixture
def followers(store: Store) -> Iterator[Followers]:
    started = Followers(store.root)
    yield started
    for process in started.processes:
        process.kill()
        process.communicate()


def has_more(store: Store, losses_before: int) -> bool:
    return len(losses(store)) > losses_before


def losses(store: Store) -> list[int]:
    return [step for key, step, _ in logged_of(store, "digits", "a") if key == "loss"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_its_tables(
    log: GrowingLog, store: Store, followers: Followers, number: signal.Signals
) -> None:
    log.grow(ends_of(RECORDS)[40])
    process = followers.start(log.path.parent.parent)
    wait_for(lambda: losses(store), 60, "the first points")
    log.grow(ends_of(RECORDS)[50])
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert [line.split()[:2] for line in out.splitlines() if line.startswith(("new", "points"))] == [
        ["new", "1"],
        ["points", "50"],
    ]
    assert losses(store) == list(range(50)), "what was written before the signal is there"


def test_a_run_that_is_followed_alone_ends_it(log: GrowingLog, store: Store, followers: Followers) -> None:
    process = followers.start(log.path.parent, "--json")
    log.grow()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    (row,) = json.loads(out)["runs"]
    assert (row["outcome"], row["points"], row["media"]) == ("new", STEPS, STEPS)


@pytest.mark.parametrize("several", [1, 2])
def test_followers_that_are_killed_lose_and_double_nothing(
    log: GrowingLog, store: Store, followers: Followers, several: int
) -> None:
    ends = ends_of(RECORDS)
    for number in range(0, STEPS, 25):
        processes = [followers.start(log.path.parent.parent) for _ in range(several)]
        before = len(losses(store))
        for end in ends[number + 1 : number + 26]:
            log.grow(end)
        # Each is killed at another moment of its work: at its start, or while the points come.
        if number % 50:
            wait_for(partial(has_more, store, before), 60, "more points")
        for process in processes:
            process.kill()
            process.communicate()
    log.grow()
    process = followers.start(log.path.parent.parent)
    wait_for(lambda: read_run(store, "digits", "a").status == "finished", 60, "the end")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert losses(store) == list(range(STEPS))
    assert len(documents(store, "digits", "a", "media/*.json")) == STEPS
    assert len(read_run(store, "digits", "a").attempts) == 1
