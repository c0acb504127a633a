"""The metrics that a running trial streams, watched for divergence by a thread of its own."""

import logging
import threading

from halving import Store
from halving.query.divergence_watch import DivergenceWatch
from resources.execution.divergence import ranges_of
from resources.scheduling.assignment import Assignment
from resources.sweep_spec import SweepSpec

FOLDER_LOOK_SECONDS = 3.0
"""Between two looks at the metrics that a trial streams into a folder."""
OBJECT_STORE_LOOK_SECONDS = 60.0
"""The same in an object store, where each look costs requests; a long training writes only one segment a minute."""

_LOOK_ENDS_SECONDS = 2.0  # for a look that is under way when the attempt is over

_log = logging.getLogger(__name__)


class StreamWatch:
    """Looks at the metrics that an attempt streams, until they are out of the spec's bounds.

    Attributes:
        diverged: what was out of bounds; None as long as nothing was.
    """

    def __init__(self, store: Store, spec: SweepSpec, assignment: Assignment) -> None:
        self._key, self._watch = assignment.key, DivergenceWatch(store, spec.name, assignment.key, assignment.attempt, ranges_of(spec))
        self._every = OBJECT_STORE_LOOK_SECONDS if store.folder is None else FOLDER_LOOK_SECONDS
        self.diverged: str | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"halving-stream-{assignment.key}", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        if self._thread.ident is not None:
            # An interpreter that ends while a file is being read crashes. A look at an S3 that does not answer takes longer: leave it.
            self._thread.join(_LOOK_ENDS_SECONDS)

    def _run(self) -> None:
        while not self._closed.wait(self._every) and self.diverged is None:
            try:
                self.diverged = self._watch.check()
            except Exception as error:  # noqa: BLE001  # whatever a store may raise: the next look may succeed
                _log.warning("cannot read the metrics of %s, the next look is tried as usual: %s", self._key, error)
