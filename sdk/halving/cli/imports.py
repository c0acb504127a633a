"""``halving import``: runs that TensorBoard, W&B, MLflow, Neptune or trackio recorded."""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

from halving.cli.output import console, print_json, print_table
from halving.errors import HalvingError, InvalidInput
from halving.identifiers import check_name
from halving.imports.copying import copy_run
from halving.imports.foreign_run import ForeignRun, Skipped
from halving.imports.reading import Unreadable
from halving.records.redaction import without_password
from halving.store.store import Store

TOOLS = {
    "tensorboard": "tensorboard",
    "wandb": "wandb_folder",
    "mlflow": "mlflow_tracking",
    "neptune": "neptune",
    "trackio": "trackio",
}
_FAILED = {"outcome": "failed", "points": 0, "media": 0, "artifacts": 0}
Reader = Callable[..., Iterator[ForeignRun | Unreadable]]


def run_import(arguments: argparse.Namespace) -> int:
    """Copy the runs of a source.

    What cannot be read or copied is reported and keeps no other run from being copied; the status is 1 then.

    JSON: ``{"store", "tool", "source", "runs": [{"project", "run", "name", "outcome", "points", "media",
    "artifacts", "error"}], "taken": {KIND: COUNT}, "not_taken": {REASON: COUNT}}``; ``outcome`` is ``new``,
    ``continued``, ``unchanged`` or ``failed``, ``name`` what the tool calls it; ``project`` and ``run`` are
    null where it cannot be read.
    """
    store = Store(arguments.root)
    project = None if arguments.project is None else check_name("--project", arguments.project)
    read: Reader = import_module(f"halving.imports.{TOOLS[arguments.tool]}").read_runs
    skipped = Skipped()
    taken: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for run in read(arguments.source, project, skipped, **_options(arguments)):
        rows.append(_copied(store, run, skipped, taken))
        if not arguments.json:
            print(_line(rows[-1]), file=sys.stderr, flush=True)
    failed = any(row["error"] for row in rows)
    if arguments.json:
        where = {"store": store.root, "tool": arguments.tool, "source": without_password(arguments.source)}
        print_json({**where, "runs": rows, "taken": dict(+taken), "not_taken": dict(skipped.reasons)})
        return 1 if failed else 0
    _print_counts(rows, taken, skipped)
    return 1 if failed else 0


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    """What a tool's reader takes beside the source and the project."""
    if arguments.files is None:
        return {}
    if arguments.tool != "neptune":
        raise InvalidInput(
            f"--files {arguments.files!r} is not accepted for {arguments.tool}: neptune alone has its "
            "files in a folder of their own"
        )
    return {"files": arguments.files}


def _copied(
    store: Store, run: ForeignRun | Unreadable, skipped: Skipped, taken: Counter[str]
) -> dict[str, Any]:
    if isinstance(run, Unreadable):
        return {"project": None, "run": None, "name": run.name, **_FAILED, "error": run.error}
    row: dict[str, Any] = {"project": run.project, "run": run.run, "name": run.origin["run"]}
    try:
        return {**row, **copy_run(store, run, skipped, taken)._asdict(), "error": None}
    except (HalvingError, OSError, ValueError) as error:
        # the store's, or a file that went away in the middle
        return {**row, **_FAILED, "error": str(error)}


def _line(row: dict[str, Any]) -> str:
    took = ", ".join(f"{row[kind]:,} {kind}" for kind in ("points", "media", "artifacts") if row[kind])
    where = f"{row['project']}/{row['run']}" if row["run"] else row["name"]
    return f"{where}: {row['error'] or ' '.join((row['outcome'], took)).strip()}"


def _print_counts(rows: list[dict[str, Any]], taken: Counter[str], skipped: Skipped) -> None:
    out = console()
    if not rows:
        out.print("nothing to import: no run was found there")
    outcomes = ("new", "continued", "unchanged", "failed")
    counts = [[outcome, *_sums([row for row in rows if row["outcome"] == outcome])] for outcome in outcomes]
    columns = ("outcome", "runs", "points", "media", "artifacts")
    if rows:
        print_table(out, columns, [line for line in counts if line[1]], right=columns[1:], first=True)
    for title, counts_of in (("taken", +taken), ("not taken", skipped.reasons)):
        print_table(out, (title, "count"), sorted(counts_of.items()) or [("nothing", 0)], right=("count",))
    if any(row["error"] for row in rows):
        out.print("run the same command again to go on where it stopped", style="dim")


def _sums(rows: list[dict[str, Any]]) -> list[int]:
    return [len(rows), *(sum(row[kind] for row in rows) for kind in ("points", "media", "artifacts"))]
