"""``halving retention``: carry out the policy of what is kept, say what would go, and why a run stays."""

import argparse
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving import HalvingError
from halving.cli.output import NONE, print_json, print_table, size
from halving.cli.parser import add_command
from pipelines.cli_views import backend_of, console_of, dagster_home

if TYPE_CHECKING:
    from rich.console import Console

    from resources.backend import Backend
    from resources.retention.carry_out import Outcome

_NOBODY = "(none)"
_MOMENT = 5.0  # seconds for which a sweep's command waits to say what went


def add_retention_command(commands: Any) -> None:
    """Add the command."""
    description = "delete what the retention policy does not keep: retention.yaml of the store, else the shipped default"
    retention = add_command(commands, "retention", description, run_retention)
    retention.add_argument("--dry-run", action="store_true", help="only say what would go, by project and kind, and what is protected")
    retention.add_argument("--project", "-p", metavar="NAME", help="only what is of this project")
    retention.add_argument("--explain", metavar="RUN", help="only say what becomes of one run, and why")
    retention.add_argument("--if-due", action="store_true", help="only where the policy is automatic and nothing was done for a day")


def run_retention(arguments: argparse.Namespace) -> int:
    """Carry out the policy, or say what it would do.

    JSON: ``{"dry_run", "policy", "shipped", "catalog", "bytes", "moved_bytes", "gone": [{"project", "kind", "count", "bytes"}],
    "protected": {REASON: runs}}``, ``bytes`` being those that are deleted; with ``--explain`` ``{"run", "project", "reason", "records":
    [{"name", "kind", "state"}]}``, ``state`` being ``stays`` or ``expired``, ``reason`` null where nothing speaks for it.
    """
    from halving.query.runs import find_run, list_names
    from resources.catalog import masked
    from resources.retention.by_itself import is_due, note
    from resources.retention.carry_out import carry_out, explain
    from resources.retention.policy_file import load_policy

    backend = backend_of(arguments)
    file = load_policy(backend.store)
    if arguments.explain is not None:
        return _print_explained(
            arguments, explain(backend.store, backend.catalog, file.policy, *find_run(backend.store, arguments.explain))
        )
    if arguments.project is not None:
        list_names(backend.store, arguments.project)  # raises for a misspelt name
    if arguments.if_due and not is_due(backend.store, backend.catalog, file.policy):
        return 0
    how: Any = {"project": arguments.project, "dry_run": arguments.dry_run}
    done = carry_out(backend.store, backend.catalog, file, **how)
    if (home := dagster_home(backend.store)).is_dir():
        from pipelines.dagster_records import forget_sweeps_of_home

        done = replace(done, gone=[*done.gone, *forget_sweeps_of_home(home, backend.catalog, file.policy, **how)])
    if not done.dry_run and arguments.project is None:
        note(backend.store, done)
    if arguments.json:
        catalog, rows = masked(backend.catalog.url), [row._asdict() for row in done.gone]
        about = {"dry_run": done.dry_run, "policy": file.source, "shipped": file.shipped, "catalog": catalog}
        sizes = {"bytes": done.bytes, "moved_bytes": done.moved_bytes}
        print_json({**about, **sizes, "gone": rows, "protected": dict(done.protected_by_reason())})
        return 0
    _print(arguments, done)
    return 0


def _print(arguments: argparse.Namespace, done: "Outcome") -> None:
    console = console_of(arguments)
    console.print(f"by {done.policy.source}", style="dim", highlight=False)
    if done.gone:
        rows = [[row.project or _NOBODY, row.kind, f"{row.count:,}", size(row.bytes)] for row in done.gone]
        print_table(console, ("project", "kind", "count", "size"), rows, right=("count", "size"), first=True)
    reasons: Counter[str] = done.protected_by_reason()
    if reasons:
        print_table(console, ("protected", "runs"), [[reason, f"{runs:,}"] for reason, runs in reasons.most_common()], right=("runs",))
    moves = "would move" if done.dry_run else "moved"
    moved = f", {size(done.moved_bytes)} {moves} to the cold tier" if done.moved_bytes else ""
    went = size(done.bytes)
    total = f"{went} would go{moved}; without --dry-run it goes" if done.dry_run else f"{went} deleted{moved}"
    console.print(total if done.gone else "nothing is old enough to go", highlight=False)


def _print_explained(arguments: argparse.Namespace, explained: dict[str, Any]) -> int:
    if arguments.json:
        print_json(explained)
        return 0
    console = console_of(arguments)
    reason = explained["reason"]
    console.print(f"{explained['run']} stays: {reason}" if reason else f"{explained['run']}: nothing speaks for it", highlight=False)
    rows = [[row["name"], row["kind"] or NONE, row["state"]] for row in explained["records"]]
    if rows:
        print_table(console, ("record", "kind", "what it names"), rows, first=True)
    return 0


def clear_away(console: "Console", backend: "Backend", home: Path) -> None:
    """Carry out an automatic policy where it is due, in a process of its own that has the lowest priority and outlives this one.

    It is waited for only for a moment, to say in one line what went. Whatever goes wrong with it is said, and nothing else happens.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from resources.retention.by_itself import is_due, last_time
    from resources.retention.policy_file import load_policy

    try:
        file = load_policy(backend.store)
        if not is_due(backend.store, backend.catalog, file.policy):
            return
        log = home / "logs" / "retention.log"
        command = [sys.executable, "-m", "halving.cli.main", "retention", "--if-due", "--root", backend.store.root]
        with log.open("w") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=lambda: os.nice(19)
            )
    except (HalvingError, OSError, SQLAlchemyError) as error:
        console.print(f"retention was left out: {error}", style="yellow", highlight=False)
        return
    change = "; a file retention.yaml in the store changes what is kept" if file.shipped else ""
    try:
        failed = process.wait(_MOMENT) != 0
    except subprocess.TimeoutExpired:
        console.print(f"old data goes in the background, by {file.source}{change}; its log: {log}", style="dim", highlight=False)
        return
    done = last_time(backend.store)
    if failed or done is None:
        console.print(f"retention failed, and the sweep is not concerned; its log: {log}", style="yellow", highlight=False)
        return
    console.print(f"old data: {_went(done)}, by {file.source}{change}", style="dim", highlight=False)


def _went(done: dict[str, Any]) -> str:
    from resources.retention.cold import KIND as MOVED

    kinds: Counter[str] = Counter()
    for row in done["gone"]:
        kinds[row["kind"]] += row["count"]
    moved, parts = kinds.pop(MOVED, 0), []
    if kinds:
        parts.append(f"{size(done['bytes'])} deleted ({', '.join(f'{count:,} {kind}' for kind, count in kinds.items())})")
    if moved:
        parts.append(f"{moved:,} {MOVED}")
    return ", ".join(parts) or "nothing had to go"
