"""Threads that watch a running attempt: one renews its lease, one looks at its streamed metrics."""

import logging
import threading
import time
from typing import Protocol

from halving import Store
from halving.query.divergence_watch import DivergenceWatch
from resources.catalog.retry import WORKER_SECONDS
from resources.execution.divergence import ranges_of
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.leases import HEARTBEAT_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.search.state import Control
from resources.sweep_spec import SweepSpec

UNHEARD_SECONDS = 2 * WORKER_SECONDS
"""How long heartbeats may fail (10 minutes) until the trial has to save a checkpoint and end.

By then another attempt may run elsewhere. A worker waits less for a decision, so an outage that it waits out
ends no trial.
"""
FOLDER_LOOK_SECONDS = 3.0
"""Time between two looks at the metrics that a trial streams into a folder."""
OBJECT_STORE_LOOK_SECONDS = 60.0
"""The same for an object store, where each look costs requests and a segment comes once a minute."""

_LOOK_ENDS_SECONDS = 2.0  # for a look that is under way when the attempt is over

_log = logging.getLogger(__name__)


class _Watch(threading.Thread):
    """Calls :meth:`look` regularly until it returns True or the watch is closed; errors are logged."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name=name, daemon=True)
        self._seconds = seconds
        self._closed = threading.Event()

    def look(self) -> bool:
        raise NotImplementedError

    def run(self) -> None:
        over = False
        while not over and not self._closed.wait(self._seconds):
            try:
                over = self.look()
            except Exception as error:  # noqa: BLE001
                # Whatever a database or a store raises, training goes on.
                _log.warning("%s failed, and tries again in %g s: %s", self.name, self._seconds, error)

    def close(self) -> None:
        """Look no more."""
        self._closed.set()


class Withdraw(Protocol):
    """Has a trial save a checkpoint and be given back."""

    def __call__(self, reclaimed: str | None, *, patiently: bool = False) -> None: ...


class Heartbeat(_Watch):
    """Renews an attempt's lease, whatever keeps the worker's main thread busy.

    Args:
        withdraw: called when the trial is to be given back, perhaps more than once: with None if the sweep
            was paused or stopped, patiently if the trial is to yield, and with a reason if heartbeats have
            failed for :data:`UNHEARD_SECONDS`.

    Attributes:
        superseded: the error once another attempt has the trial; else None.
    """

    def __init__(self, scheduler: Scheduler, assignment: Assignment, withdraw: Withdraw) -> None:
        super().__init__(f"halving-lease-{assignment.key}", HEARTBEAT_SECONDS)
        self._scheduler = scheduler
        self._assignment = assignment
        self._withdraw = withdraw
        self.superseded: Superseded | None = None
        self._heard = time.monotonic()

    def look(self) -> bool:
        try:
            control = self._scheduler.heartbeat(self._assignment)
        except Superseded as superseded:
            self.superseded = superseded
            return True
        except Exception as error:
            if (silent := time.monotonic() - self._heard) > UNHEARD_SECONDS:
                self._withdraw(f"its worker could not renew the lease for {silent:.0f} s: {error}")
            raise
        self._heard = time.monotonic()
        if control is not Control.RUN:
            self._withdraw(None, patiently=control is Control.YIELD)
        return False


class StreamWatch(_Watch):
    """Looks at the metrics that an attempt streams.

    Attributes:
        diverged: which metric is out of the spec's bounds; None until one is.
    """

    def __init__(self, store: Store, spec: SweepSpec, assignment: Assignment) -> None:
        seconds = FOLDER_LOOK_SECONDS
        if store.folder is None:
            seconds = OBJECT_STORE_LOOK_SECONDS
        super().__init__(f"halving-stream-{assignment.key}", seconds)
        self._stream = DivergenceWatch(
            store, spec.project, assignment.key, assignment.attempt, ranges_of(spec)
        )
        self.diverged: str | None = None

    def look(self) -> bool:
        self.diverged = self._stream.check()
        return self.diverged is not None

    def close(self) -> None:
        super().close()
        if self.ident is not None:
            # An interpreter that ends while a file is being read crashes. A look at an S3 that does not
            # answer takes longer: leave it.
            self.join(_LOOK_ENDS_SECONDS)
