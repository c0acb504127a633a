"""A thread of each rank that notices a collective that hangs, and asks all ranks where they are.

It reads torch's flight recorder (:mod:`halving.distributed.flight`), so it sees the collectives of DDP, too.
It talks with the others through the gang's TCPStore, which no rank can block. Shortly before the backend
gives a collective up, and perhaps ends the process, the ranks that wait in it write down who did not come.
"""

import json
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from halving.distributed import flight
from halving.distributed.flight import ARRIVALS, OWN, SAVES, Collective, Counts
from halving.distributed.hang import Hang, find_hang
from halving.store.deadline import Deadline

if TYPE_CHECKING:
    from torch.distributed import Store

_LOOK_SECONDS = 0.1
_HEAR_SECONDS = 0.5  # between two looks whether another rank asks
_CLOSELY_SECONDS = 0.5  # After so long, a collective is looked at closely.
# The others are asked so long before a collective's timeout, or at this share of it.
_BEFORE_SECONDS = 2.0
_BEFORE_SHARE = 0.25
_ANSWER_SECONDS = 1.5
_SETTLE_SECONDS = 3.0
_OWN_FRAMES = ("halving/trial_process/", "torch/distributed/elastic/", "multiprocessing/")


class WatchedRank(Protocol):
    """What the watch knows of its rank.

    Attributes:
        rank: of this process, from 0.
        call: the collective in which this rank waited last.
        waits: whether it waits there for the other ranks.
    """

    rank: int
    call: str
    waits: bool


class Watch:
    """Watches this rank's collectives until :meth:`close`.

    Args:
        gang: this rank, in its gang.
        store: the gang's; a connection of its own.
        folder: where this node's agent finds ``hang-RANK.json`` while a collective that this rank waits in is
            about to be given up.
    """

    def __init__(self, gang: WatchedRank, store: "Store", folder: Path) -> None:
        self._gang = gang
        self._store = store
        self._file = folder / f"hang-{gang.rank}.json"
        self._main = threading.main_thread().ident
        self._groups: dict[str, Collective] = {}  # number of a process group to one of its collectives
        # When a process group was first seen in a collective, by its number and its completed collectives.
        self._since: dict[tuple[str, int], float] = {}
        self._reported: Collective | None = None  # the collective that the file is about
        self._answered = 0
        self._hear_at = 0.0
        self._looks = self._waits = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="halving-gang-watch", daemon=True).start()

    def close(self) -> None:
        """Stop watching."""
        self._ended.set()

    def settle(self) -> None:
        """Write down at once whether this rank waited for others: it has raised, and is about to end."""
        if not self._lock.acquire(timeout=_SETTLE_SECONDS):
            return
        try:
            self._ended.set()
            if self._reported is None:
                with suppress(Exception):  # the store may be gone
                    self._look_back()
        finally:
            self._lock.release()

    def share_waited(self) -> float | None:
        """The share of the time since the last call, 0 to 1, that this rank spent in collectives; or None.

        It is sampled, ten times a second, and None where nothing was sampled. Collectives on GPUs do not
        count: the process goes on while the GPU waits.
        """
        looks = self._looks
        waits = self._waits
        self._looks = self._looks - looks
        self._waits = self._waits - waits
        if not looks:
            return None
        return waits / looks

    def _run(self) -> None:
        import torch.distributed as dist

        while not self._ended.wait(_LOOK_SECONDS):
            try:
                with self._lock:
                    self._look()
            except dist.DistError:  # the store is gone, and with it the gang
                return

    def _look(self) -> None:
        now = time.monotonic()
        counts = flight.counts()
        if not self._groups.keys() >= counts.keys():
            self._learn()
        under_way = {number: each for number, each in counts.items() if each.entered > each.completed}
        self._looks += 1
        self._waits += any(self._is_waiting(number) for number in under_way)
        self._since = {
            key: self._since.get(key, now)
            for key in ((number, each.completed) for number, each in under_way.items())
        }
        for key, since in self._since.items():
            if now - since > _CLOSELY_SECONDS:
                self._look_closely(key)
        if self._reported is not None and self._has_gone_on(self._reported, counts[self._reported.number]):
            # The others have come after all.
            self._reported = None
            self._file.unlink(missing_ok=True)
        if now >= self._hear_at:
            self._hear_at = now + _HEAR_SECONDS
            question = self._store.add("asked", 0)
            if question > self._answered:
                self._testify(question)

    def _has_gone_on(self, collective: Collective, counts: Counts) -> bool:
        """Whether a collective has ended.

        One that was given up counts as completed, too, but not before its timeout.
        """
        in_time = time.time() < collective.entered_at + collective.timeout
        return counts.entered > collective.position or (counts.completed >= collective.position and in_time)

    def _is_waiting(self, number: str) -> bool:
        collective = self._groups.get(number)
        if collective is not None and collective.description == ARRIVALS:
            return self._gang.waits
        return collective is None or (
            collective.description != SAVES and collective.group.startswith("gloo:")
        )

    def _learn(self) -> list[Collective]:
        collectives = flight.collectives()
        self._groups |= {each.number: each for each in collectives}
        return collectives

    def _look_closely(self, key: tuple[str, int]) -> None:
        """Write down who did not come to a process group's first unfinished collective, if it is time."""
        collective = next(
            (
                each
                for each in self._learn()
                if each.number == key[0] and each.position > key[1] and not each.over
            ),
            None,
        )
        if collective is None or (
            self._reported is not None
            and collective.number == self._reported.number
            and collective.position == self._reported.position
        ):
            return
        before = min(_BEFORE_SECONDS, _BEFORE_SHARE * collective.timeout)
        if time.time() - collective.entered_at < collective.timeout - before:
            return
        hang = self._ask(collective)
        counts = flight.counts()[collective.number]
        if counts.entered == collective.position:
            self._tell(collective, hang)

    def _look_back(self) -> None:
        """Write down a hang after the collective's error, when the recorder counts it as completed."""
        for collective in {each.number: each for each in self._learn()}.values():
            if (
                time.time() - collective.entered_at >= collective.timeout
                and (hang := self._ask(collective)).absent
            ):
                self._tell(collective, hang)
                return

    def _tell(self, collective: Collective, hang: Hang) -> None:
        self._reported = collective
        partial = self._file.with_suffix(".part")
        partial.write_text(hang.to_text())
        partial.rename(self._file)

    def _ask(self, collective: Collective) -> Hang:
        from torch.distributed.distributed_c10d import _resolve_process_group, get_process_group_ranks

        question = self._store.add("asked", 1)
        self._testify(question)
        name: Any = collective.group.partition(":")[2]
        members = sorted(get_process_group_ranks(_resolve_process_group(name)))
        testimonies: dict[int, dict[str, Any]] = {}
        deadline = Deadline.after(_ANSWER_SECONDS)
        while True:
            if (others := self._store.add("asked", 0)) > self._answered:
                # Other ranks wait for this rank's answer meanwhile.
                self._testify(others)
            for rank in members:
                if rank not in testimonies and self._store.check([f"testimony/{rank}"]):
                    testimony = json.loads(self._store.get(f"testimony/{rank}"))
                    if testimony["asked"] >= question:
                        testimonies[rank] = testimony
            if len(testimonies) == len(members) or deadline.is_over():
                break
            time.sleep(_LOOK_SECONDS)
        return find_hang(
            self._name_of(collective),
            collective.group,
            collective.position,
            collective.timeout,
            members,
            testimonies,
        )

    def _testify(self, question: int) -> None:
        self._answered = max(self._answered, question)
        newest = {each.group: each for each in self._learn()}
        entered = {
            collective.group: flight.counts()[number].entered for number, collective in self._groups.items()
        }
        said = {
            "asked": question,
            "entered": entered,
            "since": {group: each.entered_at for group, each in newest.items()},
        }
        self._store.set(f"testimony/{self._gang.rank}", json.dumps({**said, "stack": self._stack()}))

    def _name_of(self, collective: Collective) -> str:
        if collective.description == SAVES:
            return "run.save()"
        if collective.description.startswith(OWN):
            return self._gang.call
        return (
            f"{collective.operation} (collective {collective.position} of the process group "
            f"{collective.description or collective.group})"
        )

    def _stack(self) -> str:
        """Where this rank's main thread is, from the trainable on."""
        frame = sys._current_frames().get(self._main or 0)
        frames = traceback.extract_stack(frame)
        own = [
            number for number, each in enumerate(frames) if any(part in each.filename for part in _OWN_FRAMES)
        ]
        trainables: list[traceback.FrameSummary] = []
        if own:
            trainables = frames[own[-1] + 1 :]
        return "".join(traceback.format_list(trainables or frames))
