"""What all ranks of a gang must agree on: rank 0 talks to the platform, and the others get its answers.

Nothing that decides how far a training goes may be decided per rank: a clock, a store's answer or a signal
reaches one rank a moment before another. So each such call is a *collective*: every rank enters it, rank 0
acts, and the others get its result or its error.

Control messages are JSON in tensors of bytes over gloo, in process groups of their own; nothing is unpickled.
"""

import json
import time
import zlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from halving import errors
from halving.distributed.flight import ARRIVALS, OWN
from halving.errors import HalvingError, InvalidInput

if TYPE_CHECKING:
    import torch
    import torch.distributed as dist
    from torch.distributed import Store

    from halving.distributed.watch import Watch

_FIRST_BYTES = 2048  # A longer message takes a second collective.
_STOPPING = "run.stopping"
_ASK_SECONDS = 0.1  # between two exchanges of flags, where calls come closer than that
_MAX_CALLS = 16  # Every rank knows of a flag after so many calls, at most.
_ANSWER_SECONDS = 24 * 3600.0  # rank 0 may wait for the platform or a store, which have bounds of their own

Orders = Mapping[str, Callable[[Any], Any]]
"""What rank 0 may order the others to do before it answers: a function of the order's argument, by name."""


class Ranks(Protocol):
    """The ranks of a training, as one of them uses them.

    Attributes:
        rank: of this process, 0 … world_size - 1.
        world_size: how many there are.
        local_rank: this process's number on its node.
    """

    rank: int
    world_size: int
    local_rank: int

    @property
    def leads(self) -> bool:
        """Whether this is rank 0."""

    def together(
        self,
        call: str,
        action: Callable[[], Any],
        orders: Orders | None = None,
        *,
        on_flag: Callable[[], object] | None = None,
    ) -> Any:
        """Enter a collective: rank 0 runs ``action``, and every rank returns its result or raises its error.

        The result passes through JSON.

        Args:
            call: what the user has called, for the error when ranks call different things.
            action: done by rank 0 alone; it may give :meth:`order`.
            orders: what the other ranks may be ordered meanwhile.
            on_flag: called on rank 0 before the action, where :meth:`flag` was called on any rank.

        Raises:
            InvalidInput: the ranks have called different things; it names them.
            HalvingError, SystemExit: whatever the action raised on rank 0.
        """

    def order(self, name: str, argument: Any = None) -> None:
        """On rank 0 within an action, let the other ranks do something that rank 0 then does as well."""

    def flag(self) -> None:
        """Tell rank 0 at the next collective that something has come to this rank alone, such as a signal."""

    def gather(self, call: str, own: Any) -> list[Any]:
        """Gather a value of every rank, in the order of ranks; it passes through JSON."""

    def any_later(self, flag: bool) -> bool:
        """Whether any rank passed True in an earlier call; it never waits for a rank that is a step behind.

        Where calls are less than 0.1 s apart, only every sixteenth asks the other ranks. So pass True again
        until this returns True, which happens in the same call on all ranks.
        """

    def barrier(self, call: str) -> None:
        """Wait until every rank is here."""

    def connect(self) -> Any:
        """A new connection to the gang's ``torch.distributed.Store``; None where there is one process.

        A call that waits there blocks no other connection.
        """

    def share_waited(self) -> float | None:
        """The share of the time since the last call that this rank spent in collectives; None if unknown."""


class Alone:
    """The only rank of a training in one process."""

    rank = local_rank = 0
    world_size = 1
    leads = True

    def together(
        self,
        call: str,
        action: Callable[[], Any],
        orders: Orders | None = None,
        *,
        on_flag: Callable[[], object] | None = None,
    ) -> Any:
        return action()

    def order(self, name: str, argument: Any = None) -> None:
        pass

    def flag(self) -> None:
        pass

    def gather(self, call: str, own: Any) -> list[Any]:
        return [own]

    def any_later(self, flag: bool) -> bool:
        return flag

    def barrier(self, call: str) -> None:
        pass

    def connect(self) -> Any:
        return None

    def share_waited(self) -> float | None:
        return None


ALONE = Alone()


class Gang:
    """The ranks of a gang; made on all of them, after ``torch.distributed.init_process_group``.

    Args:
        timeout: seconds for which a rank waits until the others have entered the same collective.

    Attributes:
        raised_error_of_rank_0: whether this rank only repeated an error of rank 0 in its last collective.
        call: the collective in which this rank waited last.
        waits: whether it waits there for the other ranks.
        watch: watches this rank's collectives; None where nobody has begun to.
    """

    watch: "Watch | None" = None

    def __init__(self, rank: int, world_size: int, local_rank: int, *, timeout: float) -> None:
        import torch.distributed as dist

        self.rank = rank
        self.world_size = world_size
        self.local_rank = local_rank
        self.leads = rank == 0
        self._arrivals: dist.ProcessGroup = _group(ARRIVALS, timeout)
        self._answers: dist.ProcessGroup = _group(f"{OWN}answers", _ANSWER_SECONDS)
        self.call = "the gang's begin"
        self.waits = False
        self.raised_error_of_rank_0 = self._flagged = False
        self._before: tuple[dist.Work, list[torch.Tensor]] | None = None  # what was asked a step before
        # The calls since the last exchange of flags, and the calls for each exchange.
        self._calls = 0
        self._calls_each = 1
        self._asked_at = time.monotonic()

    def together(
        self,
        call: str,
        action: Callable[[], Any],
        orders: Orders | None = None,
        *,
        on_flag: Callable[[], object] | None = None,
    ) -> Any:
        flagged = self._arrive(call)
        if not self.leads:
            return self._follow(orders or {})
        try:
            if flagged and on_flag is not None:
                on_flag()
            result = action()
        except SystemExit as ended:
            self._tell({"exit": ended.code})
            raise
        except Exception as error:
            self._tell({"raised": [type(error).__name__, str(error)]})
            raise
        self._tell({"done": result})
        return result

    def order(self, name: str, argument: Any = None) -> None:
        self._tell({"order": name, "given": argument})

    def flag(self) -> None:
        self._flagged = True

    def gather(self, call: str, own: Any) -> list[Any]:
        self.barrier(call)
        return self._exchange(own)

    def any_later(self, flag: bool) -> bool:
        flagged = self._flags_before()
        self._calls += 1
        if self._calls >= self._calls_each:
            now = time.monotonic()
            # All ranks go by rank 0's number, so that all ask in the same calls.
            pace = int(_ASK_SECONDS * self._calls / max(now - self._asked_at, 1e-9))
            self._calls = 0
            self._asked_at = now
            self._before = self._enter(_STOPPING, flag, min(max(pace, 1), _MAX_CALLS))
        return flagged

    def barrier(self, call: str) -> None:
        if self._arrive(call):
            self._flagged = True  # rank 0 hears of it at the next :meth:`together`

    def share_waited(self) -> float | None:
        if self.watch is None:
            return None
        return self.watch.share_waited()

    def connect(self) -> "Store":
        import torch.distributed as dist
        from torch.distributed.distributed_c10d import _get_default_store

        # Torch's stubs lack this method.
        return dist.PrefixStore("halving", _get_default_store().clone())  # type: ignore[attr-defined]

    def _arrive(self, call: str) -> bool:
        """Wait until all ranks are in this collective; return whether one of them was flagged.

        Raises:
            InvalidInput: they are in different ones.
        """
        self.raised_error_of_rank_0 = False  # The trainable has caught an earlier one.
        self._flags_before()
        flagged = self._flagged
        self._flagged = False
        return self._await_others(call, *self._enter(call, flagged))

    def _flags_before(self) -> bool:
        """Wait for the answers to the flags that were sent last; return whether any rank passed True."""
        if self._before is None:
            return False
        before = self._before
        self._before = None
        flagged = self._await_others(_STOPPING, *before)
        self._calls_each = int(before[1][0][2])
        return flagged

    def _enter(self, call: str, flag: bool, number: int = 0) -> "tuple[dist.Work, list[torch.Tensor]]":
        """Tell the other ranks which collective this rank enters, with a flag and a number; do not wait.

        Only the number of rank 0 counts.
        """
        import torch
        import torch.distributed as dist

        own = torch.tensor([zlib.crc32(call.encode()), int(flag), number], dtype=torch.int64)
        of_all = [torch.empty_like(own) for _ in range(self.world_size)]
        work = dist.all_gather(of_all, own, group=self._arrivals, async_op=True)
        assert work is not None  # this process is in the group
        return work, of_all

    def _await_others(self, call: str, work: "dist.Work", of_all: "list[torch.Tensor]") -> bool:
        """Wait for the other ranks; return whether one of them was flagged."""
        self.call = call
        self.waits = True
        work.wait()
        self.waits = False
        if len({int(state[0]) for state in of_all}) > 1:
            calls = self._exchange(call)
            other = next(rank for rank, state in enumerate(calls) if state != calls[0])
            raise InvalidInput(
                f"rank {other} has called {calls[other]} where rank 0 has called {calls[0]}: every rank "
                "must call the same functions of "
                "its run in the same order, so call them outside of `if run.rank == 0`"
            )
        return any(int(state[1]) for state in of_all)

    def _follow(self, orders: Orders) -> Any:
        while True:
            message = self._hear()
            if "order" in message:
                orders[message["order"]](message["given"])
            elif "exit" in message:
                raise SystemExit(message["exit"])
            elif "raised" in message:
                self.raised_error_of_rank_0 = True
                name, text = message["raised"]
                raise error_named(name, text) or HalvingError(f"rank 0 raised {name}: {text}")
            else:
                return message["done"]

    def _tell(self, message: Any) -> None:
        self._broadcast(json.dumps(message).encode())

    def _hear(self) -> Any:
        return json.loads(self._broadcast(b""))

    def _broadcast(self, data: bytes) -> bytes:
        """Rank 0's bytes, on every rank; the first eight bytes sent are their number."""
        import torch
        import torch.distributed as dist

        first = torch.zeros(_FIRST_BYTES, dtype=torch.uint8)
        if self.leads:
            head = (len(data).to_bytes(8, "little") + data)[:_FIRST_BYTES]
            first[: len(head)] = _tensor(head)
        dist.broadcast(first, src=0, group=self._answers)
        got = first.numpy().tobytes()
        size = int.from_bytes(got[:8], "little")
        beginning = got[8:]
        if size <= len(beginning):
            return beginning[:size]
        rest = torch.empty(size - len(beginning), dtype=torch.uint8)
        if self.leads:
            rest = _tensor(data[len(beginning) :])
        dist.broadcast(rest, src=0, group=self._answers)
        return beginning + rest.numpy().tobytes()

    def _exchange(self, own: Any) -> list[Any]:
        import torch
        import torch.distributed as dist

        data = json.dumps(own).encode()
        sizes = [torch.empty(1, dtype=torch.int64) for _ in range(self.world_size)]
        dist.all_gather(sizes, torch.tensor([len(data)]), group=self._arrivals)
        longest = max(int(size) for size in sizes)
        texts = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.world_size)]
        dist.all_gather(texts, _tensor(data.ljust(longest, b" ")), group=self._arrivals)
        return [json.loads(text.numpy().tobytes()) for text in texts]


def _group(description: str, timeout: float) -> Any:
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout), group_desc=description)


def _tensor(data: bytes) -> Any:
    import torch

    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def error_named(name: str, text: str) -> HalvingError | None:
    """The error of :mod:`halving.errors` with this class name; None where there is no such class."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, HalvingError) and kind is not errors.BatchMissing:
        # BatchMissing takes more arguments than a text.
        return kind(text)
    return None
