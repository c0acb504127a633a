"""Where the time of a training goes, sampled with the system metrics; percent of the time since the last
sample, 0-100.

========================  ===========================================================================
``system/data_wait``      the training waited for the next batch of a loader of ``run.dataset``
``system/collectives``    the rank was in a collective, waiting for the others or exchanging with them: ours,
and those of DDP or of the
                          trainable on gloo. It is sampled ten times a second. Those on GPUs do not count: the
                          process goes on meanwhile
``system/saves``          a checkpoint was written
========================  ===========================================================================

What is left is computing, and what nobody measures: a loader of your own, Python between two steps. A
collective under which the backward pass goes on (DDP's buckets) counts as a collective.
"""

from collections.abc import Callable
from time import monotonic

from halving.data.waited import WAITED


class TimeShares:
    """Shares of the time between two calls of :meth:`read`.

    Args:
        saving: seconds spent writing checkpoints so far; None on a rank that writes none itself.
        in_collectives: the share, 0 to 1, of the time since it was last asked; None where it is not known.
    """

    def __init__(
        self, saving: Callable[[], float] | None, in_collectives: Callable[[], float | None]
    ) -> None:
        self._saving = saving
        self._in_collectives = in_collectives
        self._before = self._now()

    def read(self) -> dict[str, float]:
        """The shares that are known, by name."""
        (began, waited, saved), self._before = self._before, self._now()
        seconds = self._before[0] - began
        found: dict[str, float] = {}
        if seconds <= 0:
            return found
        if WAITED.batches:
            found["system/data_wait"] = _percent((self._before[1] - waited) / seconds)
        if (share := self._in_collectives()) is not None:
            found["system/collectives"] = _percent(share)
        if self._saving is not None:
            found["system/saves"] = _percent((self._before[2] - saved) / seconds)
        return found

    def _now(self) -> tuple[float, float, float]:
        return monotonic(), WAITED.seconds, self._saving() if self._saving is not None else 0.0


def _percent(share: float) -> float:
    """Of what began before the last sample and ended after it, all counts now."""
    return 100 * min(1.0, max(0.0, share))
