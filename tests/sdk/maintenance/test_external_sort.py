"""Sorting needs no more memory for more points."""

import tracemalloc

import numpy as np
import pytest

from halving.maintenance.external_sort import Sorter
from halving.metrics.segments import points_table


@pytest.mark.parametrize("same_step", [False, True])
def test_a_single_long_curve_is_sorted_in_the_memory_of_a_short_one(same_step: bool) -> None:
    limit = 20_000
    batch = 10_000
    batches = 60
    random = np.random.default_rng(0)
    test_curves_come_by_key()  # imports what is imported on first use, which is not to be measured
    tracemalloc.start()
    try:
        sorter = Sorter(limit)
        for number in range(batches):
            steps = np.zeros(batch, np.int64) if same_step else random.integers(-(2**62), 2**62, batch)
            values = np.arange(batch, dtype=np.float64) + number * batch
            table = points_table("r", 1 + number % 3, ["k"], np.zeros(batch, np.int32), steps, steps, values)
            sorter.add(table.to_batches()[0])
        total = 0
        last = (-(2**63), 0, -1.0)
        for chunk in sorter.chunks():
            assert len(chunk) <= limit
            first = (int(chunk["step"][0]), int(chunk["attempt"][0]), float(chunk["value"][0]))
            assert last < first
            if same_step:
                assert (np.diff(chunk["attempt"]) > 0)[np.diff(chunk["value"]) < 0].all()
            else:
                assert (np.diff(chunk["step"]) >= 0).all()
            total = total + len(chunk)
            last = (int(chunk["step"][-1]), int(chunk["attempt"][-1]), float(chunk["value"][-1]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == batch * batches
    assert peak < 32 * batch * batches / 3  # all points at once take 32 bytes each


def test_curves_come_by_key() -> None:
    sorter = Sorter(4)
    for attempt in (1, 2):
        table = points_table(
            "r",
            attempt,
            ["y", "x", "unused"],
            np.array([0, 1, 0], np.int32),
            *[np.arange(3)] * 2,
            np.zeros(3),
        )
        sorter.add(table.to_batches()[0])
    keys = [sorter.keys[curve] for chunk in sorter.chunks() for curve in chunk["curve"]]
    assert keys == ["x", "x", "y", "y", "y", "y"]
    assert sorted(sorter.totals().tolist()) == [2, 4]
