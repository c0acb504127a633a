"""A rank that runs out of memory: its message, and one retry with half the micro-batch.

One process tries again at once. In a gang the other ranks are by then waiting in collectives that this one
will not enter. So the gang ends, as it does for any rank that ends, and its next attempt begins with the
half: the rank has left a note of it beside the run's record.
"""

import contextlib
import json
import re
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from halving.errors import AlreadyExists, StoreError, message_of
from halving.records.run_record import RunRecords
from halving.store.json_files import to_json
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store

if TYPE_CHECKING:
    import torch

CHOICES = ("fail", "halve")
_GIB = 2**30
_STORE_SECONDS = 30.0  # The other ranks wait while an unavailable store is waited for.
# Of the RuntimeErrors that PyTorch and what is under it (cuBLAS, NCCL, Triton, ROCm) raise beside PyTorch's
# OutOfMemoryError.
_MESSAGES = re.compile(
    r"DefaultCPUAllocator: (can't allocate|not enough) memory"
    r"|(CUDA|HIP|Cuda failure \d+|Triton Error)\b.{0,40}out of memory"
    r"|(CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)(_STATUS)?_ALLOC_FAILED"
)


class MemoryNotes:
    """Notes of a run's attempts that ended because a rank's memory was not enough.

    Args:
        attempt: this one.
        rerun_of: ``project/run`` of the run that this one trains again, whose notes count as its own; None
            where it is no rerun.
    """

    def __init__(self, records: RunRecords, attempt: int, rerun_of: str | None = None) -> None:
        self._store = records.store
        self._folder = _folder_of(records)
        self._name = f"{attempt:04d}.json"
        self._recorded: str | None = None
        if rerun_of:
            self._recorded = _folder_of(_records_of(records.store, rerun_of))

    def leave(self, rank: int, micro_batch: int, allocated: str) -> None:
        """Note that a micro-batch of so many rows was too large; of several ranks the first note counts."""
        note = {"rank": rank, "micro_batch": micro_batch, "allocated": allocated}
        create = partial(self._store.create, f"{self._folder}/{self._name}", to_json(note))
        with contextlib.suppress(AlreadyExists, StoreError):
            # Without a note the attempt counts as a crash, and the next one leaves a note.
            retry_while_unavailable(self._store, "a note that memory ran out", create, longest=_STORE_SECONDS)

    def is_retry_due(self) -> bool:
        """Whether this attempt left a note and none before it did, so that the trial is tried once more."""
        look = partial(self._store.names, self._folder)
        return retry_while_unavailable(
            self._store, "a note that memory ran out", look, longest=_STORE_SECONDS
        ) == [self._name]

    def too_large(self) -> int | None:
        """The rows of the smallest micro-batch that was too large, also in the run that is rerun."""
        folders = [folder for folder in (self._folder, self._recorded) if folder]
        return min(
            (rows for folder in folders for rows in _micro_batches(self._store, folder).values()),
            default=None,
        )


def too_large_by_attempt(records: RunRecords) -> dict[int, int]:
    """The rows of the micro-batch that was too large, for each attempt that ended by it."""
    return _micro_batches(records.store, _folder_of(records))


def _micro_batches(store: Store, folder: str) -> dict[int, int]:
    notes = {
        int(name.partition(".")[0]): json.loads(store.read(f"{folder}/{name}"))
        for name in store.names(folder)
    }
    return {attempt: int(note["micro_batch"]) for attempt, note in notes.items()}


def _folder_of(records: RunRecords) -> str:
    return f"{records.folder}/out-of-memory"


def _records_of(store: Store, name: str) -> RunRecords:
    project, _, run = name.partition("/")
    return RunRecords(store, project, run)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was not enough: Python's, PyTorch's, or a library's."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and _MESSAGES.search(message_of(error)) is not None


def describe_memory(device: "torch.device | None") -> str:
    """How much memory is in use, for a message: of the GPU, else of this process."""
    if device is None or device.type != "cuda":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return f"the process had taken {peak / _GIB:.2f} GiB of this machine's memory"
    try:
        return _describe_gpu_memory(device)
    except RuntimeError as error:  # a GPU whose memory was not enough to begin with it
        return f"{device} does not say what was allocated: {error}"


def _describe_gpu_memory(device: "torch.device") -> str:
    import torch

    free, total = torch.cuda.mem_get_info(device)
    now = torch.cuda.memory_allocated(device)
    peak = torch.cuda.max_memory_allocated(device)
    reserved = torch.cuda.memory_reserved(device)
    return (
        f"of {total / _GIB:.2f} GiB of {torch.cuda.get_device_name(device)} ({device}) PyTorch had "
        f"allocated {now / _GIB:.2f} (at most "
        f"{peak / _GIB:.2f}) and reserved {reserved / _GIB:.2f}; {free / _GIB:.2f} GiB were free"
    )


def summary(device: "torch.device") -> str:
    """PyTorch's table of what is allocated; empty where there is no GPU."""
    import torch

    if device.type != "cuda":
        return ""
    return str(torch.cuda.memory_summary(device, abbreviated=True))


def free(error: BaseException, device: "torch.device") -> None:
    """Free what a failed step holds: the frames of its traceback keep its activations alive."""
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
