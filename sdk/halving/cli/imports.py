"""``halving import``: runs that TensorBoard, W&B, MLflow, Neptune or trackio recorded."""

import argparse
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from halving.cli.output import console, print_json, print_table
from halving.errors import HalvingError, InvalidInput
from halving.identifiers import check_name
from halving.imports.copying import copy_run
from halving.imports.foreign_run import ForeignRun, Skipped
from halving.imports.reading import Unreadable
from halving.imports.wandb_following import LOOK_SECONDS, WandbFollower
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
    """Copy the runs of a source into the store.

    A run that cannot be read or copied is reported, the others are copied, and the exit status is 1.

    JSON: ``{"store", "tool", "source", "runs": [{"project", "run", "name", "outcome", "points", "media",
    "artifacts", "error"}], "taken": {KIND: COUNT}, "not_taken": {REASON: COUNT}}``; ``outcome`` is ``new``,
    ``continued``, ``unchanged`` or ``failed``; ``name`` is what the tool calls the run; ``project`` and
    ``run`` are null where the run cannot be read.
    """
    store = Store(arguments.root)
    project = arguments.project
    if project is not None:
        check_name("--project", project)
    if arguments.follow:
        return _follow(store, arguments)
    read: Reader = import_module(f"halving.imports.{TOOLS[arguments.tool]}").read_runs
    skipped = Skipped()
    taken: Counter[str] = Counter()
    rows: list[dict[str, Any]] = []
    for run in read(arguments.source, project, skipped, **_options(arguments)):
        rows.append(_copy(store, run, skipped, taken))
        if not arguments.json:
            print(_line(rows[-1]), file=sys.stderr, flush=True)
    return _report(store, arguments, rows, taken, skipped)


def _report(
    store: Store,
    arguments: argparse.Namespace,
    rows: list[dict[str, Any]],
    taken: Counter[str],
    skipped: Skipped,
) -> int:
    if arguments.json:
        places = {"store": store.root, "tool": arguments.tool, "source": without_password(arguments.source)}
        print_json({**places, "runs": rows, "taken": dict(+taken), "not_taken": dict(skipped.reasons)})
    else:
        _print_counts(rows, taken, skipped)
    return int(any(row["error"] for row in rows))


def _follow(store: Store, arguments: argparse.Namespace) -> int:
    """Copy what W&B's runs write, until the command is stopped or a single run has ended."""
    if arguments.tool != "wandb":
        raise InvalidInput(
            f"--follow is not accepted for {arguments.tool}: it follows the offline runs of wandb; run the "
            "same command without it again to take what is new"
        )
    _options(arguments)

    def say(line: str) -> None:
        if not arguments.json:
            print(line, file=sys.stderr, flush=True)

    follower = WandbFollower(store, arguments.source, arguments.project, say)
    with _stopped_by_signals(follower.wake) as stopped:
        say(f"following {arguments.source}; Ctrl-C ends it")
        while not stopped.is_set() and not follower.is_done:
            follower.look()
            follower.wake.wait(LOOK_SECONDS)
            follower.wake.clear()
        follower.stop()
    status = _report(store, arguments, follower.rows, follower.taken, follower.skipped)
    if follower.unreached:
        say(f"{follower.unreached} runs that were there before were not copied yet: run the command again")
    return status


@contextmanager
def _stopped_by_signals(wake: threading.Event) -> Iterator[threading.Event]:
    """Set an event at the first SIGINT or SIGTERM in the block; a second one ends the process as ever."""
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        signal.signal(number, before[number])
        stopped.set()
        wake.set()

    before: dict[int, Any] = {
        number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    """Options of the tool's reader beside the source and the project."""
    if arguments.files is None:
        return {}
    if arguments.tool != "neptune":
        raise InvalidInput(
            f"--files {arguments.files!r} is not accepted for {arguments.tool}: neptune alone has its "
            "files in a folder of their own"
        )
    return {"files": arguments.files}


def _copy(
    store: Store, run: ForeignRun | Unreadable, skipped: Skipped, taken: Counter[str]
) -> dict[str, Any]:
    if isinstance(run, Unreadable):
        return {"project": None, "run": None, "name": run.name, **_FAILED, "error": run.error}
    row: dict[str, Any] = {"project": run.project, "run": run.run, "name": run.origin["run"]}
    try:
        return {**row, **copy_run(store, run, skipped, taken)._asdict(), "error": None}
    except (HalvingError, OSError, ValueError) as error:
        # The store failed, or a file of the source went away in the middle.
        return {**row, **_FAILED, "error": str(error)}


def _line(row: dict[str, Any]) -> str:
    name = row["name"]
    if row["run"]:
        name = f"{row['project']}/{row['run']}"
    if row["error"]:
        return f"{name}: {row['error']}"
    counts = ", ".join(f"{row[kind]:,} {kind}" for kind in ("points", "media", "artifacts") if row[kind])
    return f"{name}: {row['outcome']} {counts}".rstrip()


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
