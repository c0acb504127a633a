"""One save of many processes: staged by all at once, written beside training, and there when rank 0 has written the manifest."""

import contextlib
import importlib
import json
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import sha256
from threading import Thread
from typing import TYPE_CHECKING, Any

from halving.checkpoints.ranks import agreed, as_failure, error_of
from halving.checkpoints.rng_state import rng_states
from halving.checkpoints.serialization import as_json, check_names
from halving.checkpoints.sharded.manifest import Place
from halving.distributed.ranks import Ranks
from halving.errors import HalvingError
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.planner import SavePlan

    from halving.checkpoints.sharded.planning import StagingPlanner
    from halving.checkpoints.sharded.writer import StoreWriter

_DESCRIPTION = "halving:saves"  # by it, what watches the collectives of a training knows those of saves
_CALL = "run.save()"
_SLICE = 8 << 20  # bytes, that are touched at a time
_LONGEST = timedelta(days=1)  # from the first rank that has written its part to the last


class Staging:
    """What is kept from save to save: the memory of the copy, and the plan, which is agreed once for as long as the tensors stay the same.

    Memory: what this rank writes, once. Beside it nothing is copied but small tensors.
    """

    def __init__(self, store: Store, ranks: Ranks) -> None:
        importlib.import_module("halving.checkpoints.sharded.writer")  # with DCP, which takes seconds: now, not in the first save
        self._store, self._ranks = store, ranks
        self._group: ProcessGroup | None = None  # the saves' own: they speak while training's collectives go on
        self._buffer: torch.Tensor | None = None
        self._planned: tuple[str, SavePlan, Metadata] | None = None
        self._number = 0
        self._preparing: Thread | None = None

    def expect(self, model: "torch.nn.Module", optimizer: "torch.optim.Optimizer") -> None:
        """Prepare for saves of a model and its optimizer: after the first step, which makes the optimizer's states, a thread allocates the
        memory of the copy and has the system give it. That would take the first save longer than the copy itself.
        """

        def stepped(*_: Any) -> None:
            from halving.checkpoints.sharded.planning import expected_bytes

            hook.remove()
            size = expected_bytes(model, optimizer, self._ranks.world_size, self._ranks.rank)
            is_pinned = any(parameter.is_cuda for parameter in model.parameters())
            self._preparing = Thread(target=self._prepare, args=(size, is_pinned), name="halving-checkpoint-memory", daemon=True)
            self._preparing.start()

        hook = optimizer.register_step_post_hook(stepped)

    def _prepare(self, size: int, is_pinned: bool) -> None:
        import torch

        with contextlib.suppress(RuntimeError):  # there is not enough: the first save says so
            buffer = torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)
            for start in range(0, size, _SLICE):
                buffer[start : start + _SLICE].zero_()
            self._buffer = buffer

    def begin(self, state: Mapping[str, Any], give_up_at: Callable[[], float]) -> "Save":
        """Copy the state, on all ranks; a thread writes it. Collective. The save before must have ended on this rank.

        Args:
            give_up_at: until when, by ``time.monotonic``, the thread tries again where the store is unavailable.

        Raises:
            InvalidInput: a value cannot be saved.
            HalvingError: it cannot be copied; either on all ranks.
        """
        from halving.checkpoints.sharded.writer import StoreWriter

        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        planner = agreed(self._ranks, _CALL, lambda: self._planner(state))
        plan, metadata = agreed(self._ranks, _CALL, lambda: self._plan(planner))
        self._buffer = agreed(self._ranks, _CALL, lambda: planner.stage(plan, self._buffer))
        self._number += 1
        writer = StoreWriter(self._store, planner.taken, self._ranks.world_size)
        return Save(self._store, self._ranks, self._group, self._number, (planner, plan, metadata, writer), _rng_as_json(), give_up_at)

    def _planner(self, state: Mapping[str, Any]) -> "StagingPlanner":
        import torch.distributed as dist

        from halving.checkpoints.sharded.planning import StagingPlanner
        from halving.checkpoints.sharded.tree import take_apart

        if self._group is None and self._ranks.world_size > 1:
            self._group = dist.new_group(backend="gloo", timeout=_LONGEST, group_desc=_DESCRIPTION)
        check_names(state)
        return StagingPlanner(take_apart(state))

    def _plan(self, planner: "StagingPlanner") -> "tuple[SavePlan, Metadata]":
        """What this rank writes, and what all do. The ranks send each other what they have only where that has changed."""
        from halving.checkpoints.sharded.planning import plan_as_json, shared_plan

        local = plan_as_json(planner.create_local_plan())
        own = sha256(json.dumps([local, sorted(planner.taken.roles.items())]).encode()).hexdigest()
        known = self._planned is not None and self._planned[0] == own
        if not all(self._ranks.gather(_CALL, known)):
            plan, metadata = shared_plan(planner, self._ranks.gather(_CALL, local), self._ranks.rank)
            self._planned = own, plan, metadata
        assert self._planned is not None
        return self._planned[1:]


class Save:
    """A save in flight.

    Attributes:
        name: stands for it until its digest is known.
        digest: of the checkpoint, on rank 0, once it is complete.
        error: on rank 0, why it is not there.
        seconds: that it took.
    """

    def __init__(
        self,
        store: Store,
        ranks: Ranks,
        group: "ProcessGroup | None",
        number: int,
        planned: "tuple[StagingPlanner, SavePlan, Metadata, StoreWriter]",
        rng: bytes,
        give_up_at: Callable[[], float],
    ) -> None:
        self._store, self._ranks, self._group, self._rng, self._give_up_at = store, ranks, group, rng, give_up_at
        self._planner, self._plan, self._metadata, self._writer = planned
        self.name = f"save {number}"
        self.digest: str | None = None
        self.error: HalvingError | None = None
        self.seconds = 0.0
        self._thread = start_thread("halving-checkpoint", self._work)

    @property
    def ended(self) -> bool:
        """Whether this rank's thread is done: on rank 0 with the checkpoint, on another with its part."""
        return self._thread is None or not self._thread.is_alive()

    def join(self, seconds: float | None = None) -> None:
        """Wait until it has ended, for so long at most."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        began = time.monotonic()
        try:
            told = _gathered(self._group, self._ranks.world_size, self._own_part())
            if self._ranks.leads:
                self._commit(told)
        except Exception as error:  # noqa: BLE001  # whatever it is, training goes on, and rank 0 says so
            self.error = error if isinstance(error, HalvingError) else error_of(as_failure(error))
        finally:
            self.seconds = time.monotonic() - began
            del self._planner, self._plan, self._metadata, self._writer  # the copy may be written over now

    def _own_part(self) -> dict[str, Any]:
        """Write it, and say what lies where, or why it does not."""
        from halving.checkpoints.sharded.writer import results_as_json

        def write() -> dict[str, Any]:
            rng = Place(self._store.put_blob(self._rng), 0, len(self._rng))
            return {"rng": rng, "written": results_as_json(self._writer.write_data(self._plan, self._planner).wait())}

        try:
            part: dict[str, Any] = self._retried(write)
        except Exception as error:  # noqa: BLE001  # rank 0 is told
            part = {"failure": as_failure(error)}
        return part

    def _commit(self, told: list[dict[str, Any]]) -> None:
        """Where the parts of all ranks are there, write the manifest."""
        from halving.checkpoints.sharded.writer import results_of_json

        for rank, part in enumerate(told):
            if "failure" in part:
                raise error_of(part["failure"], f"rank {rank}: ")
        self._writer.rng = [Place(*part["rng"]) for part in told]
        results = [results_of_json(part["written"]) for part in told]
        self._retried(lambda: self._writer.finish(self._metadata, results))
        self.digest = self._writer.digest

    def _retried(self, action: Callable[[], Any]) -> Any:
        return retry_while_unavailable(self._store, "a checkpoint", action, self._give_up_at)


def start_thread(name: str, target: Callable[[], None]) -> Thread | None:
    """Start a daemon thread; where the interpreter is ending and starts none any more, do what it would do and return None."""
    thread = Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        target()
        return None
    return thread


def _gathered(group: "ProcessGroup | None", world_size: int, own: Any) -> list[Any]:
    """What each rank gives, as JSON; without a group there is but this one.

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
    found = [torch.empty(longest, dtype=torch.uint8) for _ in range(world_size)]
    dist.all_gather(found, torch.nn.functional.pad(data, (0, longest - len(data))), group=group)
    return [json.loads(one[: int(size)].numpy().tobytes()) for one, size in zip(found, sizes, strict=True)]


def _rng_as_json() -> bytes:
    """This rank's random states, as bytes that :func:`halving.checkpoints.sharded.reader.read_rng` reads."""
    states = rng_states()
    if "torch" in states:
        states["torch"] = states["torch"].numpy()
    if "cuda" in states:
        states["cuda"] = [one.numpy() for one in states["cuda"]]
    return json.dumps(as_json(states, "random states"), separators=(",", ":")).encode()
