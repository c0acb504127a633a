"""Which errors say that memory was not enough, and the notes by which a trial is tried once more."""

from pathlib import Path

import pytest
import torch

from halving import Store
from halving.distributed.out_of_memory import MemoryNotes, is_out_of_memory, too_large_by_attempt
from halving.errors import OutOfMemory
from halving.records.run_record import RunRecords


class Nameless(RuntimeError):
    """An error that cannot say what it is, as one whose attributes are not set yet."""

    def __str__(self) -> str:
        raise AttributeError("nothing")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemory("rank 1 ran out of memory"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: "
                "you tried to …"
            ),
            True,
        ),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`"), True),
        (RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"), True),
        (RuntimeError("CUDA driver error: out of memory"), True),
        (RuntimeError("NCCL error: unhandled cuda error. Last error:\nCuda failure 2 'out of memory'"), True),
        (RuntimeError("Triton Error [CUDA]: out of memory"), True),
        (RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"), True),
        (Nameless(), False),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUDA error: out of memory"), False),
    ],
)
def test_an_error_says_that_memory_was_not_enough(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_the_first_attempt_that_leaves_a_note_asks_for_another_and_no_later_one_does(tmp_path: Path) -> None:
    records = RunRecords(Store(str(tmp_path)), "p", "s.0001")
    crashed, first, second = (MemoryNotes(records, attempt) for attempt in (1, 2, 3))
    assert not crashed.is_retry_due()
    assert first.too_large() is None
    for rank in (3, 1):
        first.leave(rank, 8, "80 GiB")  # of two ranks the first one's counts
    assert too_large_by_attempt(records) == {2: 8}
    assert first.is_retry_due()
    assert second.too_large() == 8
    second.leave(3, 4, "80 GiB")
    assert not second.is_retry_due()


def test_a_rerun_begins_with_half_the_micro_batch_that_was_too_large_before(
    tmp_path: Path,
) -> None:
    store = Store(str(tmp_path))
    MemoryNotes(RunRecords(store, "p", "s.0001"), 1).leave(0, 8, "80 GiB")
    again = RunRecords(store, "p", "rerun-1")
    assert MemoryNotes(again, 1, rerun_of="p/s.0001").too_large() == 8
    assert MemoryNotes(again, 1).too_large() is None
