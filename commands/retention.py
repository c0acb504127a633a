"""``halving retention``: carry out the retention policy, say what would go, and explain why a run stays."""

import argparse
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from commands.shared import console_of, dagster_home, existing_backend
from halving import HalvingError
from halving.cli.output import print_json, print_table
from halving.cli.parser import add_command
from halving.text import NONE, size

if TYPE_CHECKING:
    from rich.console import Console

    from halving import Store
    from resources.backend import Backend
    from resources.catalog import Catalog
    from resources.retention.carry_out import Outcome

_NOBODY = "(none)"
_WAIT_SECONDS = 5.0  # A sweep's command waits this long to say what automatic retention did.
_REFRESH_SECONDS = 900.0  # The index may take this long; the runs that it has not read wait for the next day.


def add_retention_command(commands: Any) -> None:
    """Add the command."""
    description = (
        "delete what the retention policy does not keep: retention.yaml of the store, else the shipped "
        "default"
    )
    retention = add_command(commands, "retention", description, run_retention)
    retention.add_argument(
        "--dry-run",
        action="store_true",
        help="only say what would go, by project and kind, and what is protected",
    )
    retention.add_argument(
        "--project", "-p", metavar="NAME", help="only what is of this project, by any name that it has or had"
    )
    retention.add_argument("--explain", metavar="RUN", help="only say what becomes of one run, and why")
    retention.add_argument(
        "--if-due", action="store_true", help="only where the policy is automatic and nothing was done today"
    )


def run_retention(arguments: argparse.Namespace) -> int:
    """Carry out the policy, or say what it would do.

    JSON: ``{"dry_run", "policy", "shipped", "catalog", "unknown_projects": {NAME: meant}, "problems",
    "bytes", "moved_bytes", "gone": [{"project", "kind", "count", "bytes"}], "protected": {REASON: runs}}``.
    ``bytes`` are those that are deleted, ``problems`` say what is damaged and what was left because of it,
    and ``catalog`` is null where there is none. With ``--explain`` it is ``{"run", "project", "reason",
    "records": [{"name", "kind", "state"}]}``; ``state`` is ``stays`` or ``expired``, and ``reason`` is null
    where nothing protects the run.
    """
    from resources.catalog import mask_password
    from resources.catalog.opening import has_catalog
    from resources.retention.automatic import read_last, summarize, why_not_due, write_last
    from resources.retention.carry_out import carry_out, explain, find_run_of
    from resources.retention.policy_file import load_policy

    backend = existing_backend(arguments)
    file = load_policy(backend.store)
    if arguments.if_due and (reason := why_not_due(backend.store, file)) is not None:
        console_of(arguments).print(f"nothing is done: {reason}", highlight=False)
        return 0
    scope: Any = {"project": arguments.project, "dry_run": arguments.dry_run}
    changes_nothing = arguments.dry_run or arguments.explain is not None
    with _catalog_of(backend, makes=not changes_nothing and not arguments.if_due) as catalog:
        if arguments.explain is not None:
            run = find_run_of(backend.store, catalog, arguments.explain)
            return _print_explanation(arguments, explain(backend.store, catalog, file.policy, *run))
        if arguments.if_due and not arguments.dry_run:
            _compact_waiting(backend.store, catalog)
        done = carry_out(backend.store, catalog, file, **scope)
        home = dagster_home(backend.store)
        if home.is_dir():
            from pipelines.dagster_records import forget_sweeps_of_home

            forgotten = forget_sweeps_of_home(home, backend.store, catalog, file.policy, **scope)
            done = replace(done, gone=[*done.gone, *forgotten])
    if not done.dry_run and arguments.project is None:
        write_last(backend.store, done)
    if arguments.json:
        url = None
        if has_catalog(backend.store):
            url = mask_password(catalog.url)
        rows = [row._asdict() for row in done.gone]
        about = {"dry_run": done.dry_run, "policy": file.source, "shipped": file.shipped, "catalog": url}
        about |= {"unknown_projects": dict(done.unknown), "problems": list(done.problems)}
        sizes = {"bytes": done.bytes, "moved_bytes": done.moved_bytes}
        print_json({**about, **sizes, "gone": rows, "protected": dict(done.protected_by_reason())})
        return 0
    _print(arguments, done)
    if arguments.if_due and (last := read_last(backend.store)):
        console_of(arguments).print(summarize(last), highlight=False, soft_wrap=True)
    return 0


@contextmanager
def _catalog_of(backend: "Backend", *, makes: bool) -> "Iterator[Catalog]":
    """The store's catalog, or where it has none a new one.

    The new one is temporary unless ``makes``. It is refused where the store has sweeps, which are of another
    catalog. Automatic retention makes no catalog: in a folder that a team shares, it would be taken for the
    team's.
    """
    from halving.machine.temporary_folders import scratch_folder
    from resources.catalog import Catalog
    from resources.catalog.opening import has_catalog
    from resources.retention.ownership import check_is_own

    if not has_catalog(backend.store):
        with (
            scratch_folder("retention") as folder,
            closing(Catalog(f"sqlite:///{folder}/catalog.db")) as empty,
        ):
            check_is_own(backend.store, empty, f"a new catalog for the store {backend.store.root}")
            if not makes:
                yield empty
                return
    yield backend.catalog


def _print(arguments: argparse.Namespace, done: "Outcome") -> None:
    console = console_of(arguments)
    console.print(f"by {done.policy.source}", style="dim", highlight=False)
    for line in done.notes():
        console.print(f"note: {line}", style="yellow", highlight=False, markup=False, soft_wrap=True)
    if done.gone:
        rows = [[row.project or _NOBODY, row.kind, f"{row.count:,}", size(row.bytes)] for row in done.gone]
        print_table(console, ("project", "kind", "count", "size"), rows, right=("count", "size"), first=True)
    reasons: Counter[str] = done.protected_by_reason()
    if reasons:
        print_table(
            console,
            ("protected", "runs"),
            [[reason, f"{runs:,}"] for reason, runs in reasons.most_common()],
            right=("runs",),
        )
    if not done.gone:
        console.print("nothing is old enough to go", highlight=False)
        return
    deleted = "deleted"
    moved = "moved"
    if done.dry_run:
        deleted = "would go"
        moved = "would move"
    total = f"{size(done.bytes)} {deleted}"
    if done.moved_bytes:
        total += f", {size(done.moved_bytes)} {moved} to the cold tier"
    if done.dry_run:
        total += "; without --dry-run it goes"
    console.print(total, highlight=False)


def _print_explanation(arguments: argparse.Namespace, explanation: dict[str, Any]) -> int:
    if arguments.json:
        print_json(explanation)
        return 0
    console = console_of(arguments)
    run = explanation["run"]
    reason = explanation["reason"]
    verdict = f"{run}: nothing protects it"
    if reason:
        verdict = f"{run} stays: {reason}"
    console.print(verdict, highlight=False)
    rows = [[row["name"], row["kind"] or NONE, row["state"]] for row in explanation["records"]]
    if rows:
        print_table(console, ("record", "kind", "what it names"), rows, first=True)
    return 0


def clear_away(console: "Console", store: "Store") -> None:
    """Start automatic retention where it is due, in a process of its own that outlives this one.

    The command waits for it only briefly, to print in one line what it did. If it fails, that is printed, and
    nothing else happens.
    """
    from halving.maintenance import daily
    from resources.retention.automatic import read_last, summarize, why_not_due
    from resources.retention.policy_file import load_policy

    try:
        is_wanted = why_not_due(store, load_policy(store)) is None
    except (HalvingError, OSError) as error:
        console.print(f"retention was left out: {error}", style="yellow", highlight=False)
        return
    if not is_wanted:
        return
    process = daily.begin_daily(store)
    if process is None:
        return
    try:
        failed = process.wait(_WAIT_SECONDS) != 0
    except subprocess.TimeoutExpired:
        console.print(daily.begun_line(store), style="dim", highlight=False)
        return
    last = read_last(store)
    if failed or last is None:
        console.print(
            f"retention failed, and the sweep is not concerned; its log: {store.address(daily.LOG)}",
            style="yellow",
            highlight=False,
        )
        return
    console.print(summarize(last), style="dim", highlight=False)


def _compact_waiting(store: "Store", catalog: "Catalog") -> None:
    """Compact runs that have ended, because retention deletes no points of segments."""
    from resources.analysis.run_index import Refresher
    from resources.upkeep.compaction import compact_waiting

    Refresher(store, catalog).refresh(seconds=_REFRESH_SECONDS)
    compact_waiting(store, catalog)
