"""One save, by one process or many: staged by all at once, written beside training, committed by rank 0.

The checkpoint is there when rank 0 has written the manifest.
"""

import contextlib
import importlib
import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from halving.checkpoints.large_model import has_room
from halving.checkpoints.ranks import as_failure, error_of, run_together
from halving.checkpoints.rng_state import rng_states
from halving.checkpoints.saver import pack_to_file
from halving.checkpoints.serialization import as_json, check_names
from halving.checkpoints.sharded.manifest import Place
from halving.checkpoints.weights_digest import DigestInBackground
from halving.distributed.ranks import Ranks
from halving.errors import HalvingError, InvalidInput, StoreError, StoreUnavailable
from halving.store.backoff import backoff
from halving.store.deadline import Deadline
from halving.store.local_files import path_of
from halving.store.retry import Reach, warn
from halving.store.store import Store

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import SavePlan

    from halving.checkpoints.sharded.planning import StagingPlanner
    from halving.checkpoints.sharded.writer import StoreWriter

_DESCRIPTION = "halving:saves"  # The watch of collectives knows those of saves by this.
_CALL = "run.save()"
_SLICE = 8 << 20  # bytes, that are touched at a time
_LOOK_SECONDS = 0.05  # between two looks whether the store is back
_MAX_SPREAD = timedelta(days=1)  # The time between the first and the last rank's part.


class NoRoom(StoreError):
    """There is no memory for the copy."""


class Staging:
    """Keeps the memory of the copy and the plan from one save to the next.

    The ranks agree on the plan once, for as long as the tensors stay the same. The memory is as large as what
    this rank writes; only small tensors are copied beside it.
    """

    def __init__(self, store: Store, ranks: Ranks) -> None:
        # Importing it imports DCP, which takes seconds: now, rather than in the first save.
        importlib.import_module("halving.checkpoints.sharded.writer")
        self._store = store
        self._ranks = ranks
        # Saves have a group of their own, because they communicate while training's collectives go on.
        self._group: ProcessGroup | None = None
        self._buffer: torch.Tensor | None = None
        self._expected: list[torch.nn.Module] = []  # models whose first step makes the memory of the copy
        self._is_closed = False
        self._planned: tuple[str, SavePlan, Metadata] | None = None
        self._number = 0
        self._newest: Save | None = None  # the copy is its own until the next one begins
        self._preparing: Thread | None = None

    def expect(self, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer") -> None:
        """Prepare for saves of a model and its optimizer: allocate the copy's memory in a thread.

        It happens after the first step, which makes the optimizer's states. In the first save, the allocation
        would take longer than the copy itself.
        """
        self._expected[:] = [model]

        def prepare_after_step(*_: Any) -> None:
            from halving.checkpoints.sharded.planning import expected_bytes

            if not self._expected:
                return
            model = self._expected.pop()
            size = expected_bytes(model, optimizer, self._ranks.world_size, self._ranks.rank)
            is_pinned = any(parameter.is_cuda for parameter in model.parameters())
            self._preparing = Thread(
                target=self._prepare, args=(size, is_pinned), name="halving-checkpoint-memory", daemon=True
            )
            self._preparing.start()

        # The hook stays, because torch cannot remove one while it calls the others.
        optimizer.register_step_post_hook(prepare_after_step)

    @property
    def prepared_bytes(self) -> int:
        """Bytes of memory that are allocated for copies already."""
        self._await_memory()
        if self._buffer is None:
            return 0
        return self._buffer.nbytes

    def close(self) -> None:
        """Begin no more saves. An optimizer's hook holds this object for as long as the optimizer lives."""
        self._is_closed = True
        self._expected.clear()
        self._buffer = None
        if self._newest is not None and self._newest.ended:
            self._newest.release()
            self._newest = None

    def _await_memory(self) -> None:
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None

    def _prepare(self, size: int, is_pinned: bool) -> None:
        import torch

        with contextlib.suppress(RuntimeError):  # there is not enough: the first save says so
            buffer = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
            for start in range(0, size, _SLICE):
                buffer[start : start + _SLICE].zero_()
            if not self._is_closed:
                self._buffer = buffer

    def _memory(self, size: int, is_pinned: bool) -> "torch.Tensor":
        """The memory for a copy: that of the last one if it fits, else new memory.

        Raises:
            NoRoom: there is not enough.
        """
        import torch

        from halving.checkpoints.sharded.planning import fits

        if self._buffer is not None and fits(self._buffer.nbytes, size):
            return self._buffer
        self._buffer = None  # The old memory is freed before the new one is allocated.
        if self._ranks.world_size == 1 and not has_room(size):
            raise NoRoom(f"there is no memory for a copy of {size:,} bytes")
        try:
            self._buffer = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
        except RuntimeError as error:
            raise NoRoom(f"there is no memory for a copy of {size:,} bytes: {error}") from error
        return self._buffer

    def begin(self, state: dict[str, Any], deadline: Deadline) -> "Save":
        """Copy the state on all ranks, and begin to write it in a thread.

        It is a collective, and the save before must have ended on this rank. What one process cannot copy in
        memory is copied into a file.

        Args:
            deadline: until when the thread tries again where the store is unavailable.

        Raises:
            InvalidInput: a value cannot be saved.
            HalvingError: it cannot be copied; either on all ranks.
        """
        self._await_memory()
        if self._newest is not None:
            self._newest.release()
            self._newest = None
        self._number += 1
        try:
            save: Save = self._copy_on_all_ranks(state)
        except (InvalidInput, NoRoom):
            if self._ranks.world_size > 1:
                raise
            self._buffer = None
            save = FileSave(self._store, self._number, state)  # or it says what is wrong with the state
        save.begin(deadline)
        self._newest = save
        return save

    def _copy_on_all_ranks(self, state: Mapping[str, Any]) -> "Save":
        from halving.checkpoints.sharded.writer import StoreWriter

        planner, local = run_together(self._ranks, _CALL, lambda: self._planner(state))
        plan, metadata = run_together(self._ranks, _CALL, lambda: self._plan(planner, local))

        def stage() -> bytes:
            planner.stage(plan, self._memory)
            return _rng_as_json()

        # After this, nothing can fail on one rank alone and keep the others waiting.
        rng = run_together(self._ranks, _CALL, stage)
        planned = planner, plan, metadata, StoreWriter(self._store, planner.taken, self._ranks.world_size)
        return ShardedSave(self._store, self._number, self._ranks, self._group, planned, rng)

    def _planner(self, state: Mapping[str, Any]) -> "tuple[StagingPlanner, list[Any]]":
        """This rank's planner, and what the rank has, as JSON."""
        import torch.distributed as dist

        from halving.checkpoints.sharded.planning import StagingPlanner, plan_as_json
        from halving.checkpoints.sharded.tree import take_apart

        if self._group is None and self._ranks.world_size > 1:
            self._group = dist.new_group(backend="gloo", timeout=_MAX_SPREAD, group_desc=_DESCRIPTION)
        check_names(state)
        planner = StagingPlanner(take_apart(state))
        return planner, plan_as_json(planner.create_local_plan())

    def _plan(self, planner: "StagingPlanner", local: list[Any]) -> "tuple[SavePlan, Metadata]":
        """Plan a save: return the part that this rank writes, and the metadata of all ranks' parts.

        The plan of the save before is used again, unless the items of any rank have changed.
        """
        from halving.checkpoints.sharded.planning import shared_plan

        own = sha256(json.dumps([local, sorted(planner.taken.roles.items())]).encode()).hexdigest()
        is_planned = self._planned is not None and self._planned[0] == own
        if not all(self._ranks.gather(_CALL, is_planned)):
            plan, metadata = shared_plan(planner, self._ranks.gather(_CALL, local), self._ranks.rank)
            self._planned = own, plan, metadata
        assert self._planned is not None
        return self._planned[1:]


class Save(ABC):
    """A save in flight.

    Attributes:
        number: the number of the save, from 1.
        name: a name that stands for the digest until that is known.
        digest: the digest of the checkpoint, on rank 0, once it is complete.
        error: on rank 0, why there is no checkpoint.
        weights: where one process has written it, the digest of what is in it
            (:mod:`halving.checkpoints.weights_digest`).
        seconds: the time that it took.
        waits: whether this rank's thread waits for a store that is unavailable.
        is_recalled: whether it is given up, because nobody needs it any more.
        deadline: until when an unavailable store is waited for.
    """

    sharded = True

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self.number = number
        self.name = f"save {number}"
        self._deciding = Lock()  # whether it waits for the store
        self.digest: str | None = None
        self.weights: str | None = None
        self.error: HalvingError | None = None
        self.seconds = 0.0

    @property
    def ended(self) -> bool:
        """Whether this rank's thread is done: on rank 0 with the checkpoint, on another with its part."""
        return self._thread is None or not self._thread.is_alive()

    def join(self, seconds: float | None = None) -> bool:
        """Wait until the save has ended, for ``seconds`` at most; return whether it has."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self.ended

    def recall(self) -> None:
        """Let the save end soon, without a checkpoint.

        The upload in progress is finished, no other begins, and the store is not waited for.
        """
        self.is_recalled = True

    def keep(self) -> bool:
        """Wait for an unavailable store as long as it takes; False where this rank has given up already.

        What limits the deadline, such as a grace period, still does.
        """
        with self._deciding:
            self.deadline.move_to(math.inf)
            return not self._has_given_up

    @abstractmethod
    def release(self) -> None:
        """Release the copy, because it is not needed or about to be overwritten; the save must have ended."""

    def begin(self, deadline: Deadline) -> None:
        """Begin to write the copy on all ranks; or once more, where writing the newest save failed.

        Args:
            deadline: as for :meth:`Staging.begin`.
        """
        self.deadline = deadline
        self.error = None
        self._has_given_up = self.waits = self.is_recalled = False
        self._thread = start_thread("halving-checkpoint", self._work)

    def _work(self) -> None:
        began = time.monotonic()
        try:
            self._write()
        except HalvingError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001  # whatever it is, training goes on, and rank 0 says so
            self.error = error_of(as_failure(error))
        finally:
            self.seconds = time.monotonic() - began

    @abstractmethod
    def _write(self) -> None:
        """Write the copy, in the thread."""

    def _retry(self, action: Callable[[], Any]) -> Any:
        """Run ``action()``, again while the store is unavailable, until it is time to give up.

        It works as :func:`halving.store.retry.retry_while_unavailable`, but another thread asks whether the
        store is back. So a recall takes effect at once, and not when a call to a store that does not answer
        has ended.
        """
        pauses = backoff()
        reach = Reach(self._store)
        try:
            while True:
                try:
                    return action()
                except StoreUnavailable as error:
                    if self._gives_up():
                        raise
                    if not self.waits:
                        self.waits = True
                        left = self._seconds_left()
                        limit = f", up to {left:.0f} s" if math.isfinite(left) else ""
                        warn(f"a checkpoint waits for the store {self._store.root}{limit}: {error}")
                    if not self._is_back(reach, error.retry_after + next(pauses)) and self._gives_up():
                        raise
        finally:
            reach.close()
            self.waits = False

    def _is_back(self, reach: Reach, pause: float) -> bool:
        """Wait until the store answers, at least for ``pause`` seconds; False where it is time to give up."""
        again = time.monotonic() + pause
        reach.begin_to_ask()
        while time.monotonic() < again or not reach.has_answered:
            left = self._seconds_left()
            if left <= 0:
                return False
            time.sleep(min(_LOOK_SECONDS, left))
        return True

    def _seconds_left(self) -> float:
        """Seconds for which an unavailable store is still waited for."""
        if self.is_recalled:
            return 0.0
        return self.deadline.remaining()

    def _gives_up(self) -> bool:
        """Whether the time is over; after that, :meth:`keep` comes too late."""
        with self._deciding:
            self._has_given_up = self._seconds_left() <= 0
            return self._has_given_up


class ShardedSave(Save):
    """A save whose parts, of one rank or many, are copied in memory."""

    def __init__(
        self,
        store: Store,
        number: int,
        ranks: Ranks,
        group: "ProcessGroup | None",
        planned: "tuple[StagingPlanner, SavePlan, Metadata, StoreWriter]",
        rng: bytes,
    ) -> None:
        super().__init__(store, number)
        self._ranks = ranks
        self._group = group
        self._rng = rng
        self._planner, self._plan, self._metadata, self._writer = planned

    def recall(self) -> None:
        super().recall()
        self._writer.is_recalled = True

    def release(self) -> None:
        del self._planner, self._plan, self._metadata, self._writer

    def begin(self, deadline: Deadline) -> None:
        self._writer.is_recalled = False
        super().begin(deadline)

    def _write(self) -> None:
        parts = _gather(self._group, self._ranks.world_size, self._own_part())
        if self._ranks.leads:
            self._commit(parts)

    def _own_part(self) -> dict[str, Any]:
        """Write this rank's part, and return what lies where, or why it failed."""
        from halving.checkpoints.sharded.writer import results_as_json

        def write() -> dict[str, Any]:
            rng = Place(self._store.put_blob(self._rng), 0, len(self._rng))
            return {
                "rng": rng,
                "written": results_as_json(self._writer.write_data(self._plan, self._planner).wait()),
            }

        try:
            part: dict[str, Any] = self._retry(write)
        except Exception as error:  # noqa: BLE001  # rank 0 is told
            part = {"failure": as_failure(error)}
        return part

    def _commit(self, parts: list[dict[str, Any]]) -> None:
        """Write the manifest if the parts of all ranks are there."""
        from halving.checkpoints.sharded.writer import results_of_json

        for rank, part in enumerate(parts):
            if "failure" in part:
                raise error_of(part["failure"], f"rank {rank}: ")
        self._writer.rng = [Place(*part["rng"]) for part in parts]
        results = [results_of_json(part["written"]) for part in parts]
        if len(parts) == 1:
            with contextlib.suppress(Exception):
                # Where the bytes of the weights are unknown, the checkpoint is saved all the same.
                self.weights = self._planner.weights(self._metadata)
        self._retry(lambda: self._writer.finish(self._metadata, results))
        self.digest = self._writer.digest


class FileSave(Save):
    """A save of one process that is copied into a file on this machine instead of into memory.

    :mod:`halving.checkpoints.saver` writes the file in the same way. It is for state that does not fit into
    memory twice, or is not dense. Training waits for the file, and not for the store.
    """

    sharded = False

    def __init__(self, store: Store, number: int, state: dict[str, Any]) -> None:
        super().__init__(store, number)
        self._file, values = pack_to_file(state)
        self.weights = DigestInBackground(state, values).result()

    def release(self) -> None:
        self._file.close()

    def _write(self) -> None:
        self.digest = self._retry(lambda: self._store.put_blob(path_of(self._file)))


def start_thread(name: str, target: Callable[[], None]) -> Thread | None:
    """Start a daemon thread; if the interpreter is ending, run the target here and return None."""
    thread = Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        target()
        return None
    return thread


def _gather(group: "ProcessGroup | None", world_size: int, own: Any) -> list[Any]:
    """Gather a value of each rank, sent as JSON; without a group there is only this one.

    Raises:
        RuntimeError: a rank is gone.
    """
    import torch
    import torch.distributed as dist

    if group is None:
        return [own]
    data = torch.frombuffer(bytearray(json.dumps(own).encode()), dtype=torch.uint8)
    sizes = [torch.empty(1, dtype=torch.int64) for _ in range(world_size)]
    dist.all_gather(sizes, torch.tensor([len(data)]), group=group)
    longest = max(int(size) for size in sizes)
    texts = [torch.empty(longest, dtype=torch.uint8) for _ in range(world_size)]
    dist.all_gather(texts, torch.nn.functional.pad(data, (0, longest - len(data))), group=group)
    return [json.loads(text[: int(size)].numpy().tobytes()) for text, size in zip(texts, sizes, strict=True)]


def _rng_as_json() -> bytes:
    """This rank's random states, as bytes that :func:`halving.checkpoints.sharded.reader.read_rng` reads."""
    states = rng_states()
    if "torch" in states:
        states["torch"] = states["torch"].numpy()
    if "cuda" in states:
        states["cuda"] = [state.numpy() for state in states["cuda"]]
    return json.dumps(as_json(states, "random states"), separators=(",", ":")).encode()
