"""``halving compact --workers N``: compaction by several processes, which share the runs that wait."""

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from typing import Any

from commands.shared import console_of, existing_backend
from halving.errors import InvalidInput

_MAX_WORKERS = 64


def add_workers(compact: argparse.ArgumentParser) -> None:
    """Give the SDK's command ``--workers``."""
    compact.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="with --project or --all: processes that share the runs that wait; the index knows which",
    )
    compact.set_defaults(run=run_compact_waiting)


def run_compact_waiting(arguments: argparse.Namespace) -> int:
    """Compact the runs of a project or of the store that wait; without ``--workers`` as the SDK's command.

    The exit status is 1 if the compaction of a run fails.

    JSON: as the SDK's command, with the runs that waited.
    """
    from halving.cli.maintenance import print_compacted, run_compact
    from halving.query.runs import list_names

    if arguments.workers is None:
        return run_compact(arguments)
    if not 1 <= arguments.workers <= _MAX_WORKERS:
        raise InvalidInput(f"--workers {arguments.workers} is not accepted: give 1 to {_MAX_WORKERS}")
    if bool(arguments.run_names) or arguments.all == (arguments.project is not None):
        raise InvalidInput("--workers is not accepted with single runs: give --project NAME or --all")
    from resources.analysis.run_index import Refresher

    backend = existing_backend(arguments)
    list_names(backend.store, arguments.project)  # It raises when there is no such project.
    Refresher(backend.store, backend.catalog).refresh()
    work = partial(_work, backend.store.root, backend.catalog.url, arguments.project)
    with ProcessPoolExecutor(arguments.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        rows = [
            row
            for done in as_completed([pool.submit(work) for _ in range(arguments.workers)])
            for row in done.result()
        ]
    if not rows and not arguments.json:
        console_of(arguments).print(f"nothing to compact: no run in {backend.store.root} has new points")
        return 0
    return print_compacted(
        backend.store, sorted(rows, key=lambda row: (row["project"], row["run"])), arguments.json
    )


def _work(root: str, url: str, project: str | None) -> list[dict[str, Any]]:
    """Work as one of the processes; returns a row for each run that it compacted."""
    from halving import Store
    from halving.maintenance.compaction import Compacted
    from resources.catalog import Catalog
    from resources.upkeep.claims import Claim
    from resources.upkeep.compaction import compact_waiting

    rows: list[dict[str, Any]] = []

    def add_row(claim: Claim, done: Compacted | str) -> None:
        row: dict[str, Any] = {"project": claim.project, "run": claim.run, "error": None}
        if isinstance(done, str):
            row["error"] = done
        else:
            row |= vars(done)
        rows.append(row)

    catalog = Catalog(url)
    try:
        compact_waiting(Store(root), catalog, project=project, many=1, on_run=add_row)
    finally:
        catalog.close()
    return rows
