"""Which errors say that memory was not enough, and the notes by which a trial is tried once more."""

from pathlib import Path

import pytest
import torch

from halving import Store
from halving.distributed.out_of_memory import MemoryNotes, is_out_of_memory
from halving.errors import OutOfMemory
from halving.records.run_record import RunRecords


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (OutOfMemory("rank 1 ran out of memory"), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to …"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
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
    assert first.is_retry_due()
    assert second.too_large() == 8
    second.leave(3, 4, "80 GiB")
    assert not second.is_retry_due()
