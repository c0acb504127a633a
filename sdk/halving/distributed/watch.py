"""What watches a gang: a thread of each rank, which sees a collective that hangs and asks all ranks where
they are.

It reads torch's flight recorder (:mod:`halving.distributed.flight`), so that it sees the collectives of DDP,
too, and it speaks with the others through the gang's TCPStore, which no rank holds. Shortly before the
backend gives a collective up, and perhaps ends the process, the ranks that wait in it have written who did
not come.
"""

import json
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.distributed import flight
from halving.distributed.flight import Collective, Counts
from halving.distributed.hang import Hang, find_hang
from halving.distributed.ranks import ARRIVALS, OWN, SAVES

if TYPE_CHECKING:
    from torch.distributed import Store

    from halving.distributed.ranks import Gang

_LOOK_SECONDS = 0.1
_HEAR_SECONDS = 0.5  # between two looks whether another rank asks
_CLOSELY_SECONDS = 0.5  # after which a collective is looked at closely
# before its timeout, or the share of it, the others are asked
_BEFORE_SECONDS = 2.0
_BEFORE_SHARE = 0.25
_ANSWER_SECONDS = 1.5
_SETTLE_SECONDS = 3.0
_OWN_FRAMES = ("halving/trial_process/", "torch/distributed/elastic/", "multiprocessing/")


class Watch:
    """Watches this rank's collectives until :meth:`close`.

    Args:
        gang: of this rank.
        store: the gang's; a connection of its own.
        folder: where this node's agent finds ``hang-RANK.json`` while a collective that this rank waits in is
            about to be given up.
    """

    def __init__(self, gang: "Gang", store: "Store", folder: Path) -> None:
        self._gang = gang
        self._store = store
        self._file = folder / f"hang-{gang.rank}.json"
        self._main = threading.main_thread().ident
        self._groups: dict[str, Collective] = {}  # number of a process group to one of its collectives
        # process group and completed ones: when it was first seen in the next
        self._since: dict[tuple[str, int], float] = {}
        self._told: Collective | None = None  # the collective that the file is about
        self._answered = 0
        self._hear_at = 0.0
        self._looks = self._waits = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._run, name="halving-gang-watch", daemon=True).start()

    def close(self) -> None:
        """Watch no longer."""
        self._ended.set()

    def settle(self) -> None:
        """This rank has raised: have it written at once whether it waited for others, before it ends."""
        if not self._lock.acquire(timeout=_SETTLE_SECONDS):
            return
        try:
            self._ended.set()
            if self._told is None:
                with suppress(Exception):  # the store may be gone
                    self._look_back()
        finally:
            self._lock.release()

    def share_waited(self) -> float | None:
        """The share of the time since the last call, 0 to 1, in which this rank was in a collective; None if
        it was not looked at.

        It is sampled, ten times a second. Collectives on GPUs do not count: the process goes on while the GPU
        waits.
        """
        looks = self._looks
        waits = self._waits
        self._looks = self._looks - looks
        self._waits = self._waits - waits
        return waits / looks if looks else None

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
        if self._told is not None and self._has_gone_on(self._told, counts[self._told.number]):
            # the others have come after all
            self._told = None
            self._file.unlink(missing_ok=True)
        if now >= self._hear_at:
            self._hear_at = now + _HEAR_SECONDS
            asked = self._store.add("asked", 0)
            if asked > self._answered:
                self._testify(asked)

    def _has_gone_on(self, told: Collective, counts: Counts) -> bool:
        """Whether a collective has come to its end.

        One that was given up counts as completed, too, but not before its timeout.
        """
        in_time = time.time() < told.entered_at + told.timeout
        return counts.entered > told.position or (counts.completed >= told.position and in_time)

    def _is_waiting(self, number: str) -> bool:
        known = self._groups.get(number)
        if known is not None and known.description == ARRIVALS:
            return self._gang.waits
        return known is None or (known.description != SAVES and known.group.startswith("gloo:"))

    def _learn(self) -> list[Collective]:
        found = flight.collectives()
        self._groups |= {each.number: each for each in found}
        return found

    def _look_closely(self, key: tuple[str, int]) -> None:
        """Have it written who did not come to the first collective of a process group that has not completed,
        if it is time to.
        """
        found = next(
            (
                each
                for each in self._learn()
                if each.number == key[0] and each.position > key[1] and not each.over
            ),
            None,
        )
        if found is None or (
            self._told is not None
            and found.number == self._told.number
            and found.position == self._told.position
        ):
            return
        before = min(_BEFORE_SECONDS, _BEFORE_SHARE * found.timeout)
        if time.time() - found.entered_at < found.timeout - before:
            return
        hang = self._ask(found)
        counts = flight.counts()[found.number]
        if counts.entered == found.position:
            self._tell(found, hang)

    def _look_back(self) -> None:
        """After an error of a collective, when the recorder counts it as completed."""
        for found in {each.number: each for each in self._learn()}.values():
            if time.time() - found.entered_at >= found.timeout and (hang := self._ask(found)).absent:
                self._tell(found, hang)
                return

    def _tell(self, found: Collective, hang: Hang) -> None:
        self._told = found
        partial = self._file.with_suffix(".part")
        partial.write_text(hang.to_text())
        partial.rename(self._file)

    def _ask(self, found: Collective) -> Hang:
        from torch.distributed.distributed_c10d import _resolve_process_group, get_process_group_ranks

        asked = self._store.add("asked", 1)
        self._testify(asked)
        name: Any = found.group.partition(":")[2]
        members = sorted(get_process_group_ranks(_resolve_process_group(name)))
        testimonies: dict[int, dict[str, Any]] = {}
        until = time.monotonic() + _ANSWER_SECONDS
        while True:
            if (others := self._store.add("asked", 0)) > self._answered:
                # they wait for this rank's answer meanwhile
                self._testify(others)
            for rank in members:
                if rank not in testimonies and self._store.check([f"testimony/{rank}"]):
                    testimony = json.loads(self._store.get(f"testimony/{rank}"))
                    if testimony["asked"] >= asked:
                        testimonies[rank] = testimony
            if len(testimonies) == len(members) or time.monotonic() > until:
                break
            time.sleep(_LOOK_SECONDS)
        return find_hang(
            self._name_of(found), found.group, found.position, found.timeout, members, testimonies
        )

    def _testify(self, asked: int) -> None:
        self._answered = max(self._answered, asked)
        newest = {each.group: each for each in self._learn()}
        entered = {known.group: flight.counts()[number].entered for number, known in self._groups.items()}
        said = {
            "asked": asked,
            "entered": entered,
            "since": {group: each.entered_at for group, each in newest.items()},
        }
        self._store.set(f"testimony/{self._gang.rank}", json.dumps({**said, "stack": self._stack()}))

    def _name_of(self, found: Collective) -> str:
        if found.description.startswith(OWN):
            return "run.save()" if found.description == SAVES else self._gang.call
        return (
            f"{found.operation} (collective {found.position} of the process group "
            f"{found.description or found.group})"
        )

    def _stack(self) -> str:
        """Where this rank's main thread is, from the trainable on."""
        frame = sys._current_frames().get(self._main or 0)
        frames = traceback.extract_stack(frame)
        own = [
            number for number, each in enumerate(frames) if any(part in each.filename for part in _OWN_FRAMES)
        ]
        return "".join(
            traceback.format_list(frames[own[-1] + 1 :] if own and own[-1] + 1 < len(frames) else frames)
        )
