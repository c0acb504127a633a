"""A rank whose memory is not enough: what it says of it, and one more try with half the micro-batch.

One process tries again at once. Of a gang the other ranks are by then waiting in collectives that this one will not enter, so the gang
ends, as it does for any rank that ends, and its next attempt begins with the half: the rank has left a note of it beside the run's record.
"""

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

from halving.errors import AlreadyExists, StoreError
from halving.records.run_record import RunRecords
from halving.store.json_files import to_json

if TYPE_CHECKING:
    import torch

CHOICES = ("fail", "halve")
_GIB = 2**30
_MESSAGES = (  # of the RuntimeErrors that PyTorch raises where memory is not enough, beside its OutOfMemoryError
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
)


class MemoryNotes:
    """Notes of attempts at a run that ended because a rank's memory was not enough.

    Args:
        attempt: this one.
    """

    def __init__(self, records: RunRecords, attempt: int) -> None:
        self._store, self._folder, self._name = records.store, f"{records.folder}/out-of-memory", f"{attempt:04d}.json"

    def leave(self, rank: int, micro_batch: int, allocated: str) -> None:
        """Note that a micro-batch of so many rows was too large; of several ranks the first one's note counts."""
        note = {"rank": rank, "micro_batch": micro_batch, "allocated": allocated}
        with contextlib.suppress(AlreadyExists, StoreError):  # without it the attempt is a crash; the next one leaves another
            self._store.create(f"{self._folder}/{self._name}", to_json(note))

    def is_retry_due(self) -> bool:
        """Whether this attempt has left a note and none before it has: then the trial is tried once more."""
        return self._store.names(self._folder) == [self._name]

    def too_large(self) -> int | None:
        """The rows of the smallest micro-batch that was too large in an earlier attempt."""
        names = self._store.names(self._folder)
        return min((int(json.loads(self._store.read(f"{self._folder}/{name}"))["micro_batch"]) for name in names), default=None)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was not enough: Python's, PyTorch's, or one of a library under it."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in _MESSAGES)


def allocated(device: "torch.device | None") -> str:
    """How much memory is in use, for a message; without a device, or on the CPU, by this process."""
    if device is None or device.type != "cuda":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return f"the process had taken {peak / _GIB:.2f} GiB of this machine's memory"
    try:
        return _allocated_on_gpu(device)
    except RuntimeError as error:  # a GPU whose memory was not enough to begin with it
        return f"{device} does not say what was allocated: {error}"


def _allocated_on_gpu(device: "torch.device") -> str:
    import torch

    free, total = torch.cuda.mem_get_info(device)
    now, most, reserved = torch.cuda.memory_allocated(device), torch.cuda.max_memory_allocated(device), torch.cuda.memory_reserved(device)
    return (
        f"of {total / _GIB:.2f} GiB of {torch.cuda.get_device_name(device)} ({device}) PyTorch had allocated {now / _GIB:.2f} (at most "
        f"{most / _GIB:.2f}) and reserved {reserved / _GIB:.2f}; {free / _GIB:.2f} GiB were free"
    )


def summary(device: "torch.device") -> str:
    """PyTorch's table of what is allocated; empty where there is no GPU."""
    import torch

    return str(torch.cuda.memory_summary(device, abbreviated=True)) if device.type == "cuda" else ""


def free(error: BaseException, device: "torch.device") -> None:
    """Give back what a failed step holds: the frames of its traceback hold its activations."""
    import gc
    import traceback

    import torch

    each: Any = error
    while each is not None:
        traceback.clear_frames(each.__traceback__)
        each = each.__context__
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
