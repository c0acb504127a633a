"""The lease of a running attempt, renewed by a thread of its own."""

import logging
import threading
import time
from collections.abc import Callable

from resources.catalog.retry import WORKER_SECONDS
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.leases import HEARTBEAT_SECONDS
from resources.scheduling.scheduler import Scheduler
from resources.search.state import Control

UNHEARD_SECONDS = 2 * WORKER_SECONDS
"""How long heartbeats may fail (10 minutes) until the trial has to save a checkpoint and end: by then it may run elsewhere, too. A worker
waits less for a decision, so an outage that it waits out ends no trial."""

_log = logging.getLogger(__name__)


class Heartbeat:
    """Renews an attempt's lease, whatever the worker's main thread is busy with: a trainable's import, Dagster's event log, a slow store.

    Args:
        scheduler: the sweep's decisions.
        assignment: the attempt.
        withdraw: called when the trial is to be given back: with None because the sweep is paused or stopped, with a reason because
            heartbeats have failed for :data:`UNHEARD_SECONDS`. It may be called more than once.

    Attributes:
        superseded: set once another attempt has the trial; there are no more heartbeats then.
    """

    def __init__(self, scheduler: Scheduler, assignment: Assignment, withdraw: Callable[[str | None], None]) -> None:
        self._scheduler, self._assignment, self._withdraw = scheduler, assignment, withdraw
        self.superseded: Superseded | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"halving-lease-{assignment.key}", daemon=True)

    def start(self) -> None:
        """Begin the heartbeats."""
        self._thread.start()

    def close(self) -> None:
        """End them."""
        self._closed.set()

    def _run(self) -> None:
        heard = time.monotonic()
        while not self._closed.wait(HEARTBEAT_SECONDS):
            try:
                control = self._scheduler.heartbeat(self._assignment)
            except Superseded as superseded:
                self.superseded = superseded
                return
            except Exception as error:  # noqa: BLE001  # an unavailable database: training goes on, and the next heartbeat may arrive
                _log.warning("no heartbeat for %s, the next one is tried as usual: %s", self._assignment.key, error)
                if (silent := time.monotonic() - heard) > UNHEARD_SECONDS:
                    self._withdraw(f"its worker could not renew the lease for {silent:.0f} s: {error}")
                continue
            heard = time.monotonic()
            if control is not Control.RUN:
                self._withdraw(None)
