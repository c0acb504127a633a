"""Which values a restart has discarded: a run that began again at a step drops all from that step on.

An event ``SessionLog.START`` says so, which PyTorch's ``SummaryWriter(purge_step=…)`` writes. It discards
earlier values, in the same file and in those before it, of its step and of later steps, whatever their names.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple


class Restart(NamedTuple):
    """A place where a file says that the run began again: the byte after the record, and the step."""

    end: int
    step: int


class Discarded:
    """Tells which values of one file a later restart has discarded.

    Args:
        own: the file's restarts, in its order.
        later: the smallest step of the restarts in later files; infinite where there is none.
    """

    def __init__(self, own: Sequence[Restart], later: float) -> None:
        self._ends = [restart.end for restart in own]
        steps: list[float] = [*(restart.step for restart in own), later]
        self._from = list(accumulate(reversed(steps), min))[::-1]

    def has(self, end: int, step: int) -> bool:
        """Whether the values of a record are discarded."""
        return step >= self._from[bisect_right(self._ends, end)]


def discarded_of(restarts: Mapping[str, Sequence[Restart]]) -> dict[str, Discarded]:
    """Find out what is discarded of each file.

    Args:
        restarts: restarts of each file by its name, in the order in which the files were written. Those of
            another folder (``FOLDER/FILE``) are another run to TensorBoard.
    """
    discarded = {}
    later: dict[str, float] = {}
    for name, own in reversed(list(restarts.items())):
        folder = name.rpartition("/")[0]
        of_folder = later.get(folder, math.inf)
        discarded[name] = Discarded(own, of_folder)
        later[folder] = min([of_folder, *(restart.step for restart in own)])
    return discarded
