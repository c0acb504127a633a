"""Studies whose trials a process of the user trains, without a server.

The SDK's ``halving.wandb.sweep`` and ``agent`` find :func:`open_local_studies` by the application's entry
point.
"""

import socket
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import uuid4

if TYPE_CHECKING:
    from halving import Store
    from resources.execution.external_loops import ExternalLoops

LEASE_SECONDS = 120.0


def open_local_studies(store: "Store") -> "LocalStudies":
    """The studies of a store and its catalog."""
    return LocalStudies(store)


class LocalStudies:
    """Studies of the catalog of a store, as :class:`halving.wandb.sweep_studies.Studies` has them."""

    def __init__(self, store: "Store") -> None:
        from resources.backend import Backend

        self._backend = Backend(root=store.root)
        self._worker = f"{socket.gethostname()} {uuid4().hex[:12]}"
        self._loops: dict[str, ExternalLoops] = {}

    def open(self, spec: dict[str, Any]) -> str:
        """Open a study of loops that read their own data, and return its id.

        Raises:
            InvalidInput: the spec is not accepted.
        """
        from resources.datasets.no_data import NO_DATA
        from resources.datasets.snapshots import find_or_take_snapshot
        from resources.execution.external_loops import check_study
        from resources.scheduling.gpu_hours import check_gpu_hours
        from resources.scheduling.sweeps import open_sweep
        from resources.sweep_spec import parse_spec

        backend = self._backend
        checked = parse_spec({**spec, "dataset": NO_DATA}, trains=False)
        check_study(checked)
        check_gpu_hours(backend.catalog, checked)
        # Another call opens another sweep, as it does in W&B, also of a spec that has an unfinished one.
        sweep = f"{checked.name}-{uuid4().hex[:8]}"
        snapshot = find_or_take_snapshot(backend.store, backend.catalog, checked)
        row = open_sweep(backend.catalog, checked, snapshot.digest, driver="api", commit=None, sweep=sweep)
        return row.id

    def project(self, study: str) -> str:
        """The project of a study's runs."""
        return self._of(study).scheduler.spec.project

    def ask(self, study: str) -> dict[str, Any] | str | None:
        """The next trial; ``over`` when the search has ended, and None when there is nothing to do now."""
        from resources.search.decide import Finish, Wait

        work = self._of(study).ask(self._worker, LEASE_SECONDS, again=False)
        if isinstance(work, Finish):
            return "over"
        if isinstance(work, Wait):
            return None
        return asdict(work)

    def tell(
        self, study: str, trial: int, attempt: int, epoch: int, values: dict[str, float], *, waits: bool
    ) -> str:
        """Say what a trial has reached; returns the decision. The catalog is always waited for."""
        loops = self._of(study)
        return loops.tell(trial, attempt, epoch, values, None, LEASE_SECONDS).decision

    def heartbeat(self, study: str, trial: int, attempt: int) -> str:
        """Renew the lease; returns ``continue``, or why the trial is left."""
        return self._of(study).heartbeat(trial, attempt, LEASE_SECONDS).decision

    def fail(self, study: str, trial: int, attempt: int, error: str) -> None:
        """Say that a trial has failed, and would fail again."""
        self._of(study).fail(trial, attempt, error[-20_000:], final=True)

    def release(self, study: str, trial: int, attempt: int) -> None:
        """Give a trial back, which is no failure."""
        self._of(study).release(trial, attempt)

    def close(self) -> None:
        """Stop choosing params, and close the catalog."""
        for loops in self._loops.values():
            loops.close()
        self._loops.clear()

    def _of(self, study: str) -> "ExternalLoops":
        from resources.execution.external_loops import ExternalLoops

        if study not in self._loops:
            self._loops[study] = ExternalLoops(self._backend.catalog, study)
        return self._loops[study]
