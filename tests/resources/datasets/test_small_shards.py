"""Small shards stay few, appends store little more than they add, and rows are rewritten a few times."""

from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from resources.datasets.small_shards import find_first_merged
from tests.properties import examples

MIB = 2**20
FULL = 128 * MIB


@pytest.mark.parametrize(
    ("sizes", "added", "first"),
    [
        ([], MIB, 0),
        ([FULL, FULL], MIB, 2),
        ([FULL, FULL // 4], 4 * FULL, 2),
        ([FULL, MIB], 4 * MIB, 1),
        ([FULL, MIB], 4 * MIB - 1, 2),
        ([FULL, MIB, MIB, MIB], 8 * MIB, 2),
        ([FULL, 20 * MIB, MIB], 4 * MIB, 2),
        ([FULL, *[MIB] * 31], MIB, 32),
        ([FULL, *[MIB] * 32], MIB, 1),
        ([FULL, *[MIB] * 32], 0, 33),
        ([FULL, *[20 * MIB] * 5, *[MIB] * 32], MIB, 6),
        ([FULL, *[MIB] * 16, 20 * MIB, *[MIB] * 31], MIB, 49),
    ],
)
def test_a_merge_takes_a_quarter_of_what_is_appended_or_the_shards_of_a_full_tier(
    sizes: list[int], added: int, first: int
) -> None:
    assert find_first_merged(sizes, added, FULL) == first


@given(st.lists(st.integers(1, 40 * MIB), min_size=1, max_size=60), st.integers(1, 200))
@settings(max_examples=examples(40))
def test_small_shards_stay_few_and_a_row_is_written_a_few_times_at_most(
    additions: list[int], rounds: int
) -> None:
    sizes = [FULL]
    written = 0
    for added in additions * rounds:
        first = find_first_merged(sizes, added, FULL)
        merged = sum(sizes[first:]) + added
        count = max(1, round(merged / FULL))
        sizes[first:] = [merged // count] * count
        written += merged
        small = list(takewhile(lambda size: size < FULL // 4, reversed(sizes)))
        assert len(small) < 31 * 6, "of each of six tiers fewer than gather"
    assert written <= 7 * rounds * sum(additions), "once, by each of at most five tiers, and a quarter"


@given(st.integers(1, 3 * MIB))
@settings(max_examples=examples(20))
def test_of_appends_of_one_size_each_stores_what_it_adds_but_one_in_32(added: int) -> None:
    sizes = [FULL]
    alone = 0
    for _ in range(320):
        first = find_first_merged(sizes, added, FULL)
        alone += first == len(sizes)
        sizes[first:] = [sum(sizes[first:]) + added]
    assert alone >= 310
