"""How a share of a batch is cut, and sums that do not depend on how it is dealt."""

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halving.distributed.exact import TreeSum, check_leaves
from halving.distributed.micro_batches import bounds, micro_batch_count, part_of, rows_of
from halving.errors import InvalidInput

Pair = namedtuple("Pair", "x y")


@given(st.integers(1, 200), st.integers(1, 16), st.integers(1, 40), st.integers(1, 4))
def test_each_row_is_in_one_micro_batch_and_all_ranks_have_equally_many(
    rows: int, ranks: int, micro_batch: int, minimum: int
) -> None:
    shares = [rows * (rank + 1) // ranks - rows * rank // ranks for rank in range(ranks)]
    if min(shares) < 1:
        return
    count = micro_batch_count(shares, micro_batch, minimum)
    for share in shares:
        parts = bounds(share, count)
        assert [row for first, end in parts for row in range(first, end)] == list(range(share))
        assert all(end > first for first, end in parts)
        # two rows cannot be cut where another rank has one
        assert max(end - first for first, end in parts) <= max(micro_batch, 2)


def test_a_part_has_the_same_rows_of_everything_and_arrays_are_tensors() -> None:
    batch: tuple[Any, ...] = (
        {"x": torch.arange(6).reshape(3, 2), "name": ["a", "b", "c"], "n": 3},
        Pair(np.arange(3.0), None),
        [torch.ones(3)],
    )
    assert rows_of(batch) == 3
    first, pair, listed = part_of(batch, 1, 3, torch.device("cpu"))
    assert first["x"].tolist() == [[2, 3], [4, 5]]
    assert (first["name"], first["n"]) == (["b", "c"], 3)
    assert torch.equal(pair.x, torch.tensor([1.0, 2.0], dtype=torch.float64))
    assert pair.y is None
    assert listed[0].shape == (2,)


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=24, max_size=24),
    st.sampled_from([(8, [1, 2, 4, 8]), (24, [3, 6, 12, 24])]),
)
def test_a_tree_sum_is_the_same_whoever_adds_its_subtrees(
    numbers: list[float], cut: tuple[int, list[int]]
) -> None:
    leaves, sizes = cut
    sums = {
        sum_in_tree(
            [sum_in_tree(numbers[leaf : leaf + leaves // size]) for leaf in range(0, leaves, leaves // size)]
        )
        for size in sizes
    }
    assert len(sums) == 1


def sum_in_tree(numbers: list[float]) -> float:
    tree = TreeSum()
    for number in numbers:
        tree.add([torch.tensor(number)])
    return tree.total[0].item()


@pytest.mark.parametrize(("leaves", "ranks"), [(8, 3), (8, 16), (24, 2), (12, 1)])
def test_ranks_without_a_whole_subtree_are_refused(leaves: int, ranks: int) -> None:
    with pytest.raises(
        InvalidInput,
        match=f"exact = {leaves} micro-batches on {ranks} ranks is not accepted.*give exact={8 * ranks},",
    ):
        check_leaves(leaves, ranks)
