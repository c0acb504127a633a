"""How a run begins: in your own script, or as an attempt at a trial."""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halving.errors import NotFound
from halving.identifiers import check_name, new_id
from halving.records.run_record import RunRecords
from halving.run.run import Run
from halving.store.opening import open_store
from halving.store.retry import retry_while_unavailable
from halving.store.store import Store
from halving.trial.context import Controller, TrialContext


def init(
    project: str,
    config: Mapping[str, Any] | None = None,
    root: str | Path | None = None,
    *,
    url: str | None = None,
    token: str | None = None,
    id: str | None = None,
    seed: int | None = None,
    tags: Mapping[str, str] | None = None,
    strict: bool = False,
    system_metrics: float | None = 30.0,
) -> Run:
    """Start a run, or the next attempt of the run ``id``. Its record is complete and durable when this returns.

    Args:
        project: a name that groups runs.
        config: the hyperparameters; they never change afterwards. A run that is continued by ``id`` keeps its own.
        root: the store (default: ``HALVING_ROOT``, then ``./.halving``).
        url: instead of a store, a Halving server's address, such as ``https://halving.example.org`` (default where no ``root`` is given:
            ``HALVING_URL``). Everything is sent there; while it does not answer, the journal on this machine keeps it.
        token: of that server (default: ``HALVING_TOKEN``).
        id: continue this run; ``restore`` gives its latest checkpoint. (A new id starts a run of that id.)
        seed: seeds ``random``, numpy and torch, and is recorded.
        tags: labels of your choice, recorded.
        strict: raise in ``log()`` for a wrong name or value. By default it is left out, counted and warned about: many hours of
            training must not end because of a metric.
        system_metrics: seconds between samples of CPU, memory, disk, network and GPUs (extras ``system`` and ``gpu``); None for none.

    Raises:
        InvalidInput: a name, a hyperparameter or the address is not accepted.
        AlreadyExists: the run ``id`` exists with other hyperparameters.
        StoreError: the store cannot be written, or was unavailable for ten minutes.
    """
    run = id or new_id()
    store = open_store(root, url, token, f"{project}/{run}")
    if config is None and id is not None:
        records = RunRecords(store, check_name("project", project), check_name("run id", id))
        with contextlib.suppress(NotFound):
            config = retry_while_unavailable(store, f"run {id}", records.read)["params"]
    return Run(
        store,
        project=project,
        run_id=run,
        params=config or {},
        seed=seed,
        parent={"tags": dict(tags)} if tags else {},
        strict=strict,
        system_metrics=system_metrics,
    )


def open_trial(context: TrialContext, controller: Controller) -> Run:
    """Open the run of a trial's attempt, in the trial's process."""
    return Run(
        Store(context.root),
        project=context.project,
        run_id=context.run,
        params=context.params,
        seed=context.seed,
        parent=context.parent,
        attempt=context.attempt,
        trial=context,
        controller=controller,
        captured=context.provenance,
    )
