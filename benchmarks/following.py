"""How soon what W&B has written offline is seen by who watches its run here."""

import itertools
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.machine import CHECKOUT, Setting
from benchmarks.peers.installs import environment, install
from benchmarks.results import Part, Table, Target, spread
from halving.imports.foreign_run import Skipped
from halving.imports.wandb_log import read_log
from halving.imports.wandb_messages import parse
from halving.imports.wandb_run import step_of
from halving.query.run_follower import BEGINNING, RunFollower
from halving.store.store import Store

BOUND = 2.0
_RATES = (100, 50, 20, 5, 1)  # calls of log() in a second, of each run
_LOOK_SECONDS = 1.0  # as live streams of the server look
_TEXT = """
Real W&B logs ten scalars a call in several offline runs at once, 1 to 100 times a second each, and
`halving import wandb FOLDER --follow` copies them into a store in a folder. W&B writes its log in blocks of
32 KiB, and every 15 s what there is. Measured is from the moment when a step's bytes are in W&B's file (its
size is looked at every 20 ms) until a reader has the point that looks once a second, as the server's live
streams do; and until the run's end is in the store.
"""
_TRAINING = """
import sys, time, wandb
run = wandb.init(project="p", id=sys.argv[1], mode="offline")
rate, seconds = float(sys.argv[2]), float(sys.argv[3])
for step in range(int(rate * seconds)):
    run.log({f"m{number}": step * number for number in range(10)})
    time.sleep(1 / rate)
run.finish()
"""


def measure(setting: Setting) -> Part:
    """Measure the seconds from W&B's writing to a reader's seeing."""
    part = Part("following", "Following W&B's offline runs", _TEXT)
    installed = install(setting.home / "wandb", (("wandb==0.31.0",),), "wandb", allowed=not setting.quick)
    if installed.python is None:
        part.missing.append(f"W&B: {installed.reason}")
        return part
    delays, ends = _follow(installed.python, setting.work, setting.choose(5.0, 60.0))
    part.targets.append(Target("the longest that a point was not seen", "s", [max(delays)], BOUND))
    part.tables.append(
        Table(
            ["runs", "steps at the end of a write", "not seen for, s", "the run's end, s"],
            [[str(len(_RATES)), f"{len(delays):,}", spread(delays), spread(ends)]],
        )
    )
    return part


def _follow(python: Path, folder: Path, seconds: float) -> tuple[list[float], list[float]]:
    source = folder / "wandb"
    source.mkdir()
    (folder / "training.py").write_text(_TRAINING)
    root = str(folder / "store")
    command = [sys.executable, "-m", "halving.cli.main", "import", "wandb", str(source), "--root", root]
    follower = subprocess.Popen([*command, "--follow", "--json"], cwd=CHECKOUT, stdout=subprocess.PIPE)
    trainings = [
        subprocess.Popen(
            [str(python), "training.py", f"r{rate}", str(rate), str(seconds)],
            cwd=folder,
            env=environment(folder),
        )
        for rate in _RATES
    ]
    watch = _Watch(source, Store(root))
    while any(training.poll() is None for training in trainings) or watch.is_waiting:
        watch.look()
        time.sleep(0.02)
    follower.send_signal(signal.SIGTERM)
    follower.communicate()
    return watch.delays, watch.ends


class _Watch:
    """Notes when steps are in W&B's files, and when a reader of the store has them."""

    def __init__(self, source: Path, store: Store) -> None:
        self._source = source
        self._store = store
        self._reached: dict[Path, int] = {}
        self._waiting: dict[str, dict[int, float]] = defaultdict(dict)  # by run and step, since when
        self._exits: dict[str, float] = {}
        self._readers: dict[str, RunFollower] = {}
        self._next_look = 0.0
        self.delays: list[float] = []
        self.ends: list[float] = []

    @property
    def is_waiting(self) -> bool:
        return any(self._waiting.values()) or len(self.ends) < len(_RATES)

    def look(self) -> None:
        for log in self._source.glob("*run-*/*.wandb"):
            if log.stat().st_size > self._reached.get(log, 0):
                self._note_written(log, log.stem.removeprefix("run-"), time.monotonic())
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + _LOOK_SECONDS
            for run in list(self._waiting):
                self._read(run)
        for run, written in list(self._exits.items()):
            if self._store.exists(f"runs/project=p/{run}/end-0001.json"):
                self.ends.append(time.monotonic() - written)
                del self._exits[run]

    def _note_written(self, log: Path, run: str, now: float) -> None:
        """Note the last step of what was written; those before it are copied with it."""
        steps = []
        for record in read_log(log, Skipped(), self._reached.get(log, 0)):
            self._reached[log] = record.end
            message: Any = parse(record.data)
            if message.HasField("history"):
                steps.append(step_of(message.history))
            if message.HasField("exit"):
                self._exits[run] = now
        if steps:
            self._waiting[run][max(steps)] = now

    def _read(self, run: str) -> None:
        if not self._store.exists(f"runs/project=p/{run}/record.json"):
            return
        reader = self._readers.setdefault(run, RunFollower(self._store, "p", run, BEGINNING))
        points = reader.look(["m0"], 1_000_000).points
        last = max(itertools.chain.from_iterable(part.steps.tolist() for part in points), default=-1)
        now = time.monotonic()
        for step in [step for step in self._waiting[run] if step <= last]:
            self.delays.append(now - self._waiting[run].pop(step))
