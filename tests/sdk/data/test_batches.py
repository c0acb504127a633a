"""An epoch is cut into batches that are the same for any number of ranks, none of which lacks a row."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from halving.data.batches import Batches, too_few

SIZES = st.tuples(st.integers(1, 400), st.integers(1, 70))


def bounds(batches: Batches) -> list[int]:
    return [batches.start(number) for number in range(len(batches) + 1)]


@given(sizes=SIZES, drop_last=st.booleans(), data=st.data())
def test_taken_up_after_any_batch_the_rest_is_the_same(
    sizes: tuple[int, int], drop_last: bool, data: st.DataObject
) -> None:
    total, size = sizes
    whole = bounds(Batches(total, 0, size, 1, drop_last))
    start = data.draw(st.integers(0, len(whole) - 1))
    assert bounds(Batches(total, whole[start], size, 1, drop_last)) == whole[start:]


@given(sizes=SIZES, ranks=st.integers(1, 9), drop_last=st.booleans())
def test_all_ranks_have_the_same_number_of_batches_and_a_row_of_each(
    sizes: tuple[int, int], ranks: int, drop_last: bool
) -> None:
    total, size = sizes
    if too_few(total, size, ranks, drop_last):
        return
    batches = Batches(total, 0, size, ranks, drop_last)
    assert bounds(batches) == bounds(Batches(total, 0, size, 1, drop_last))
    assert drop_last or batches.start(len(batches)) == total
    for number in range(len(batches)):
        shares = [batches.share(number, rank) for rank in range(ranks)]
        assert all(begin < end for begin, end in shares)
        assert [begin for begin, _ in shares[1:]] == [end for _, end in shares[:-1]]
        assert (shares[0][0], shares[-1][1]) == (batches.start(number), batches.start(number + 1))


@given(sizes=SIZES)
def test_batches_are_full_but_the_last_two_which_are_equal_and_at_least_half(sizes: tuple[int, int]) -> None:
    total, size = sizes
    starts = bounds(Batches(total, 0, size, 1, drop_last=False))
    rows = [after - before for before, after in pairwise(starts)]
    assert len(rows) == -(-total // size)
    assert all(count == size for count in rows[:-2])
    if len(rows) > 1:
        assert rows[-1] >= size // 2
        assert rows[-1] == rows[-2] == size or rows[-2] - rows[-1] in (0, 1)


@given(sizes=SIZES, start=st.integers(0, 400), ranks=st.integers(1, 9))
def test_from_any_position_no_rank_lacks_a_row_and_at_most_one_batch_is_lost(
    sizes: tuple[int, int], start: int, ranks: int
) -> None:
    total, size = sizes
    batches = Batches(total, start, max(size, ranks), ranks, drop_last=False)
    for number in range(len(batches)):
        assert all(begin < end for begin, end in (batches.share(number, rank) for rank in range(ranks)))
    assert max(0, total - start) - (batches.start(len(batches)) - start) < ranks or size < 2 * ranks


def test_what_does_not_fill_a_batch_may_be_left_out() -> None:
    assert bounds(Batches(100, 0, 32, 1, drop_last=True)) == [0, 32, 64, 96]
    assert bounds(Batches(100, 0, 32, 1, drop_last=False)) == [0, 32, 64, 82, 100]
