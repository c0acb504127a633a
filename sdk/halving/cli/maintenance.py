"""``halving recover`` and ``halving compact``."""

import argparse
import contextlib
import sys
from typing import Any

from halving.cli.output import console, print_json, print_table
from halving.errors import HalvingError, InvalidInput
from halving.identifiers import check_name
from halving.query.runs import find_run, list_names
from halving.store.opening import open_store
from halving.store.server_store import ServerStore
from halving.store.store import Store
from halving.text import size


def run_recover(arguments: argparse.Namespace) -> int:
    """Drain the journals of dead processes. The exit status is 1 if a journal had to be kept.

    JSON: ``{"store", "journals", "attempts": [{"project", "run", "attempt", "points", "state"}]}``; ``state``
    is ``recovered``, ``live`` or ``kept: REASON``.
    """
    from halving.ingest.recovery import recover
    from halving.journal.directory import journal_home

    store = open_store(arguments.root, arguments.url)
    project = arguments.project
    run = None
    if arguments.run_name:
        if isinstance(store, ServerStore):
            project, run = _run_on_server(arguments.run_name)
        else:
            project, run = find_run(store, arguments.run_name)
        if arguments.project not in (None, project):
            raise InvalidInput(
                f"--project {arguments.project!r} is not accepted: run {run!r} is of project {project!r}"
            )
    with contextlib.closing(store):
        attempts = recover(store, project, run)
    kept = [row for row in attempts if row.state.startswith("kept")]
    home = str(journal_home(store))
    if arguments.json:
        print_json({"store": store.root, "journals": home, "attempts": [row._asdict() for row in attempts]})
        return int(bool(kept))
    out = console()
    if not attempts:
        of_runs = ""
        if project:
            of_runs = " of these runs"
        out.print(f"nothing to recover: there are no journals{of_runs} in {home}")
        return 0
    columns = ("run", "project", "attempt", "points", "state")
    print_table(
        out,
        columns,
        [[row.run, row.project, row.attempt, row.points, row.state] for row in attempts],
        right=("attempt", "points"),
        first=True,
    )
    if kept:
        out.print("kept journals stay on this machine; run the same command again to retry", style="dim")
    return int(bool(kept))


def run_compact(arguments: argparse.Namespace) -> int:
    """Compact runs.

    A run that fails is reported, the others are compacted, and the exit status is 1.

    JSON: ``{"store", "runs": [{"project", "run", "error": null or text, ...}]}`` with the fields of
    :class:`halving.maintenance.compaction.Compacted`.
    """
    from halving.maintenance.compaction import compact

    store = Store(arguments.root)
    runs = _runs_to_compact(store, arguments)
    rows: list[dict[str, Any]] = []
    for number, (project, run) in enumerate(runs, start=1):
        row: dict[str, Any] = {"project": project, "run": run, "error": None}
        try:
            row |= vars(compact(store, project, run))
        except (HalvingError, OSError, ValueError) as error:
            # Arrow raises a ValueError for a damaged file.
            row["error"] = str(error)
        rows.append(row)
        if sys.stderr.isatty():
            print(f"\r{number} of {len(runs)} runs", end="", file=sys.stderr, flush=True)
    if runs and sys.stderr.isatty():
        print(file=sys.stderr)
    return print_compacted(store, rows, arguments.json)


def print_compacted(store: Store, rows: list[dict[str, Any]], as_json: bool) -> int:
    """Print what compaction did with each run, and return the command's exit status."""
    failed = [row for row in rows if row["error"]]
    if as_json:
        print_json({"store": store.root, "runs": rows})
        return int(bool(failed))
    out = console()
    if not rows:
        out.print(f"nothing to compact: there are no runs in {store.root} yet")
        return 0
    cells = [
        [
            row["run"],
            row["project"],
            row["segments"],
            row["points"],
            row["total"],
            size(row["bytes_before"]),
            size(row["bytes_after"]),
        ]
        for row in rows
        if not row["error"]
    ]
    columns = ("run", "project", "segments", "new points", "points", "before", "after")
    if cells:
        print_table(out, columns, cells, right=columns[2:], first=True)
    for row in rows:
        if row.get("gaps"):
            out.print(
                f"{row['project']}/{row['run']}: {len(row['gaps'])} segments are not compacted, because "
                "one before them is missing"
            )
    for row in failed:
        out.print(f"{row['project']}/{row['run']}: {row['error']}", style="red")
    return int(bool(failed))


def _run_on_server(name: str) -> tuple[str, str]:
    """The project and the run in ``project/run``; the server is not asked whether it has the run."""
    project, _, run = name.partition("/")
    return check_name("project", project), check_name("run id", run)


def _runs_to_compact(store: Store, arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """The runs to compact, which exactly one of RUN…, --project and --all chooses."""
    selectors = [bool(arguments.run_names), arguments.project is not None, arguments.all]
    if sum(selectors) != 1:
        raise InvalidInput("it is not clear which runs are meant: give RUN…, or --project NAME, or --all")
    if arguments.run_names:
        return list(dict.fromkeys(find_run(store, name) for name in arguments.run_names))
    return list_names(store, arguments.project)
