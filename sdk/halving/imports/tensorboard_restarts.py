"""What a restart discarded of TensorBoard's files: a run that began again at a step drops what it had logged
from that step on.

An event ``SessionLog.START`` says so, which PyTorch's ``SummaryWriter(purge_step=…)`` writes. Of all earlier
values, in the same file and in those before it, the ones of its step and of later steps are gone, whatever
their names.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple


class Restart(NamedTuple):
    """Where a file says that the run began again, as the byte behind the record, and at which step."""

    end: int
    step: int


class Discarded:
    """Which values of one file a later restart discarded.

    Args:
        own: the restarts that the file has, in its order.
        later: the smallest step of the restarts in the files behind it; infinite where there is none.
    """

    def __init__(self, own: Sequence[Restart], later: float) -> None:
        self._ends = [restart.end for restart in own]
        steps: list[float] = [*(restart.step for restart in own), later]
        self._from = list(accumulate(reversed(steps), min))[::-1]

    def has(self, end: int, step: int) -> bool:
        """Whether the values of a record are gone."""
        return step >= self._from[bisect_right(self._ends, end)]


def discarded_of(restarts: Mapping[str, Sequence[Restart]]) -> dict[str, Discarded]:
    """What is gone of each file.

    Args:
        restarts: of each file by its name, in the order in which they were written. Those of another folder
            (``FOLDER/FILE``) are another run to TensorBoard.
    """
    discarded = {}
    later: dict[str, float] = {}
    for name, own in reversed(list(restarts.items())):
        folder = name.rpartition("/")[0]
        of_folder = later.get(folder, math.inf)
        discarded[name] = Discarded(own, of_folder)
        later[folder] = min([of_folder, *(restart.step for restart in own)])
    return discarded
