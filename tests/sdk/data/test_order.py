"""The order of an epoch: each row once, the same for ever, and mixed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving.data.order import Order

FIRST = [(0, 2), (2, 1), (0, 4), (2, 3), (0, 3), (2, 0), (0, 0), (1, 0), (0, 1), (1, 2), (2, 2), (1, 1)]
SECOND = [(2, 1), (2, 0), (0, 3), (0, 1), (1, 2), (2, 2), (0, 2), (0, 0), (1, 1), (1, 0), (2, 3), (0, 4)]
THIRD = ([1, 1, 2, 2, 0, 0], [222349, 439046, 174074, 892683, 499295, 836673])
ROWS = st.lists(st.integers(1, 60), min_size=1, max_size=8)


def rows_of(order: Order) -> list[tuple[int, int]]:
    shards, rows = order.locate(np.arange(order.total))
    return list(zip(shards.tolist(), rows.tolist(), strict=True))


@given(
    rows=ROWS,
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(1, 2**40),
    lanes=st.integers(1, 40),
    shuffle=st.booleans(),
)
def test_each_position_has_one_row_and_each_row_one_position(
    rows: list[int], seed: int, epoch: int, lanes: int, shuffle: bool
) -> None:
    located = rows_of(Order(rows, seed=seed, epoch=epoch, lanes=lanes, shuffle=shuffle))
    assert sorted(located) == [(shard, row) for shard, count in enumerate(rows) for row in range(count)]


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 16, 17, 1_000, 65_536, 65_537, 1_000_003])
def test_the_rows_of_a_shard_of_any_size_are_a_permutation(rows: int) -> None:
    _, permuted = Order([rows], seed=5, epoch=2, lanes=1).locate(np.arange(rows))
    assert (np.sort(permuted) == np.arange(rows)).all()


def test_one_lane_without_shuffling_is_the_stored_order() -> None:
    assert rows_of(Order([2, 1, 3], seed=9, epoch=4, lanes=1, shuffle=False)) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
        (2, 1),
        (2, 2),
    ]


def test_the_order_is_the_same_for_ever() -> None:
    """These were written down when the format was made.

    A training that is resumed counts on them: never change them.
    """
    assert rows_of(Order([5, 3, 4], seed=0, epoch=1, lanes=2)) == FIRST
    assert rows_of(Order([5, 3, 4], seed=7, epoch=3, lanes=5)) == SECOND
    shards, rows = Order([1_000_000, 777_777, 999_999], seed=2**62, epoch=12, lanes=16).locate(
        np.arange(0, 2_777_776, 555_555)
    )
    assert (shards.tolist(), rows.tolist()) == THIRD


@given(rows=ROWS, seed=st.integers(0, 1000), lanes=st.integers(1, 20))
def test_part_of_the_positions_has_the_rows_that_it_has_among_all(
    rows: list[int], seed: int, lanes: int
) -> None:
    order = Order(rows, seed=seed, epoch=1, lanes=lanes)
    positions = np.arange(order.total)[::-3]
    shards, rows_within = order.locate(positions)
    expected = rows_of(order)
    assert [expected[position] for position in positions.tolist()] == list(
        zip(shards.tolist(), rows_within.tolist(), strict=True)
    )


@given(rows=ROWS, seed=st.integers(0, 1000), lanes=st.integers(1, 40))
def test_a_shard_is_needed_where_its_first_row_is(rows: list[int], seed: int, lanes: int) -> None:
    order = Order(rows, seed=seed, epoch=1, lanes=lanes)
    first: dict[int, int] = {}
    for position, (shard, _) in enumerate(rows_of(order)):
        first.setdefault(shard, position)
    positions, shards = order.needs()
    assert (np.diff(positions) >= 0).all()
    first_positions: dict[int, int] = {}
    for position, shard in zip(positions.tolist(), shards.tolist(), strict=True):
        first_positions.setdefault(shard, position)
    assert first_positions == first


def test_another_seed_epoch_or_number_of_lanes_is_another_order() -> None:
    orders = [
        rows_of(Order([300, 300], seed=seed, epoch=epoch, lanes=lanes))
        for seed, epoch, lanes in ((0, 1, 4), (1, 1, 4), (0, 2, 4), (0, 1, 5))
    ]
    for place, order in enumerate(orders):
        for other in orders[place + 1 :]:
            assert sum(a == b for a, b in zip(order, other, strict=True)) < 20


def test_neighbours_come_from_as_many_shards_as_there_are_lanes() -> None:
    shards, _ = Order([1_000] * 16, seed=3, epoch=1, lanes=8).locate(np.arange(16_000))
    for begin in range(0, 16_000, 500):
        assert len(set(shards[begin : begin + 8].tolist())) == 8


def test_each_row_comes_as_early_as_late() -> None:
    """The mean place of a row over many epochs is in the middle, up to 4 standard errors.

    This holds for all rows and shards.
    """
    epochs = 400
    rows = [40, 25, 35]
    places = np.zeros((epochs, 100))
    starts = np.array([0, 40, 65])
    for epoch in range(epochs):
        shards, rows_within = Order(rows, seed=1, epoch=epoch, lanes=4).locate(np.arange(100))
        places[epoch, starts[shards] + rows_within] = np.arange(100)
    error = np.sqrt((100**2 - 1) / 12 / epochs)
    assert np.abs(places.mean(axis=0) - 49.5).max() < 5 * error


def test_a_row_of_a_shard_is_as_often_followed_by_any_other() -> None:
    """A chi-square test of the pairs of neighbours in 8,000 shards of 8 rows.

    It has 55 degrees of freedom, and must be below the quantile of one in a million.
    """
    counts = np.zeros((8, 8))
    _, sequence = Order([8] * 8_000, seed=11, epoch=1, lanes=1).locate(np.arange(64_000))
    rows = sequence.reshape(8_000, 8)
    np.add.at(counts, (rows[:, :-1], rows[:, 1:]), 1)
    pairs = counts[~np.eye(8, dtype=bool)]
    expected = pairs.sum() / 56
    assert ((pairs - expected) ** 2 / expected).sum() < 125
