"""Cuts an epoch into global batches, and each batch into the shares of the ranks."""

from itertools import accumulate


class Batches:
    """The global batches from a position to the end of an epoch, numbered from 0.

    All have ``size`` rows except the last two, which share the remaining rows equally. So no batch is smaller
    than half of ``size``. A last batch of a single row would leave ranks without any, which would wait for
    the others forever, and it would spoil a batch's statistics. Each rank has at least one row of each batch.
    The bounds do not depend on the number of ranks or on where the epoch was resumed.

    Args:
        total: rows of the epoch.
        start: the position of the first batch.
        size: rows of a global batch.
        ranks: number of processes that share each batch.
        drop_last: leave out the rows that do not fill a batch. They are also left out where they are fewer
            than the ranks, which can happen after a resume with another batch size or number of ranks. For a
            whole epoch :func:`too_few` tells.
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
        """The position of a batch's first row; for the number ``len`` it is the end of the epoch."""
        if number <= self._full:
            return self._start + number * self._size
        return self._tail_starts[number - self._full]

    def share(self, number: int, rank: int) -> tuple[int, int]:
        """The positions of one rank's rows of a batch: the first, and the end."""
        start = self.start(number)
        rows = self.start(number + 1) - self.start(number)
        return start + rows * rank // self._ranks, start + rows * (rank + 1) // self._ranks


def too_few(total: int, size: int, ranks: int, drop_last: bool) -> bool:
    """Whether the last rows of a whole epoch are too few for the ranks, so that they would be lost."""
    batches = Batches(total, 0, size, ranks, drop_last)
    return not len(batches) or size < ranks or (not drop_last and batches.start(len(batches)) < total)
