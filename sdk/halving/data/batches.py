"""How an epoch is cut into global batches, and each of them among ranks."""

from itertools import accumulate


class Batches:
    """The global batches from a position to the end of an epoch, numbered from 0.

    Each rank has a share of each: at least one row.

    All are of ``size`` rows but the last two, which share equally what is left. So none is smaller than half
    a batch, where a last one of a single row would leave ranks without any (they would wait for the others
    for ever) and spoil a batch's statistics. The bounds depend neither on the number of ranks nor on where
    the epoch was taken up.

    Args:
        total: rows of the epoch.
        start: the position of the first batch.
        size: rows of a global batch.
        ranks: among how many processes each is divided.
        drop_last: leave out the rows that do not fill a batch. They are also left out where they are too few
            for the ranks: after a resume with another batch size or number of ranks (:func:`too_few` says so
            of a whole epoch).
    """

    def __init__(self, total: int, start: int, size: int, ranks: int, drop_last: bool) -> None:
        self._size = size
        self._ranks = ranks
        self._start = start
        self._full, rest = divmod(max(0, total - start), size)
        self._tail: list[int] = []  # sizes
        if rest and not drop_last:
            sizes = [rest]
            if self._full:
                shared = size + rest
                sizes = [shared - shared // 2, shared // 2]
            if sizes[-1] >= ranks:
                self._full -= len(sizes) - 1
                self._tail = sizes
        self._tail_starts = list(accumulate([start + self._full * size, *self._tail]))

    def __len__(self) -> int:
        return self._full + len(self._tail)

    def start(self, number: int) -> int:
        """The position of a batch's first row; that of number ``len`` is the end."""
        if number <= self._full:
            return self._start + number * self._size
        return self._tail_starts[number - self._full]

    def share(self, number: int, rank: int) -> tuple[int, int]:
        """The positions of a rank's rows of a batch: from, and up to."""
        start = self.start(number)
        rows = self.start(number + 1) - self.start(number)
        return start + rows * rank // self._ranks, start + rows * (rank + 1) // self._ranks


def too_few(total: int, size: int, ranks: int, drop_last: bool) -> bool:
    """Whether a whole epoch would lose rows, or have no batch, because the last of them are fewer than the
    ranks.
    """
    batches = Batches(total, 0, size, ranks, drop_last)
    return not len(batches) or size < ranks or (not drop_last and batches.start(len(batches)) < total)
