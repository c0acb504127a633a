"""Where the time of a training goes, sampled with the system metrics.

Each is a percentage (0-100) of the time since the last sample:

- ``system/data_wait``: the training waited for the next batch of a loader of ``run.dataset``.
- ``system/collectives``: the rank was in a collective, waiting for other ranks or exchanging data with them.
  Collectives of Halving count, and those of DDP or of the trainable on gloo. It is sampled ten times a
  second. Collectives on GPUs do not count, because the process goes on meanwhile.
- ``system/saves``: a checkpoint was written.

The rest is computing, and what nobody measures: a loader of your own, Python between two steps. A collective
under which the backward pass goes on (DDP's buckets) counts as a collective.
"""

from collections.abc import Callable
from time import monotonic

from halving.data.waited import WAITED


class TimeShares:
    """Shares of the time between two calls of :meth:`read`.

    Args:
        saving: returns the seconds spent writing checkpoints so far; None on a rank that writes none itself.
        in_collectives: returns the share, 0 to 1, of the time since its last call, or None where it is
            unknown.
    """

    def __init__(
        self, saving: Callable[[], float] | None, in_collectives: Callable[[], float | None]
    ) -> None:
        self._saving = saving
        self._in_collectives = in_collectives
        self._before = self._now()

    def read(self) -> dict[str, float]:
        """The shares that can be measured, by name."""
        began, waited_before, saved_before = self._before
        self._before = self._now()
        ends, waited, saved = self._before
        seconds = ends - began
        shares: dict[str, float] = {}
        if seconds <= 0:
            return shares
        if WAITED.batches:
            shares["system/data_wait"] = _percent((waited - waited_before) / seconds)
        in_collectives = self._in_collectives()
        if in_collectives is not None:
            shares["system/collectives"] = _percent(in_collectives)
        if self._saving is not None:
            shares["system/saves"] = _percent((saved - saved_before) / seconds)
        return shares

    def _now(self) -> tuple[float, float, float]:
        saved = 0.0
        if self._saving is not None:
            saved = self._saving()
        return monotonic(), WAITED.seconds, saved


def _percent(share: float) -> float:
    """A share in percent, at most 100, because a wait is counted as a whole when it ends."""
    return 100 * min(1.0, max(0.0, share))
