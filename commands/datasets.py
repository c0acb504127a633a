"""``halving datasets``: list, show, compare and deprecate snapshots, and check and fetch their shards."""

import argparse
import os
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.output import print_table
from halving.cli.parser import add_command, add_group
from halving.errors import InvalidInput
from halving.text import NONE, size

if TYPE_CHECKING:
    from rich.console import Console

    from halving import Dataset
    from resources.backend import Backend
    from resources.datasets.snapshot_catalog import Snapshot

_MAX_FAULTS = 20


def add_datasets_commands(commands: Any) -> None:
    """Add ``halving datasets`` with its own commands."""
    description = "datasets' snapshots: list, show, diff, deprecate, verify, fetch"
    inner = add_group(commands, "datasets", description)
    reference = "a snapshot as NAME@DIGITS, or the first digits of its digest"

    add_command(inner, "list", "list all snapshots", run_list).add_argument(
        "name", nargs="?", help="only of this dataset"
    )
    add_command(
        inner,
        "show",
        "show a snapshot: its splits, columns, shards and where it comes from",
        run_show,
        snapshot=reference,
    )
    add_command(
        inner,
        "diff",
        "show what changed from one snapshot to another",
        run_diff,
        old=reference,
        new=reference,
    )
    deprecate = add_command(
        inner,
        "deprecate",
        "let nothing be launched on a snapshot any more; it is never deleted",
        run_deprecate,
        snapshot=reference,
    )
    action = deprecate.add_mutually_exclusive_group(required=True)
    action.add_argument("--reason", help="why; whoever tries to launch on it reads this")
    action.add_argument("--undo", action="store_true", help="let it be used again")
    add_command(
        inner,
        "verify",
        "read each shard of a snapshot, and look at each file it refers to",
        run_verify,
        snapshot=reference,
    )
    fetch = add_command(
        inner,
        "fetch",
        "bring back a snapshot's missing and damaged shards from another store",
        run_fetch,
        snapshot=reference,
    )
    fetch.add_argument(
        "--from", dest="source", metavar="STORE", help="the other store (default: HALVING_DVC_REMOTE)"
    )


def run_list(arguments: argparse.Namespace) -> int:
    """List snapshots.

    JSON: ``[{"key", "digest", "rows", "bytes", "splits", "source", "deprecated", "created_at"}]``, by name,
    oldest first.
    """
    from resources.datasets.snapshot_catalog import list_snapshots

    snapshots = list_snapshots(backend_of(arguments).catalog, arguments.name)
    fields = ("key", "digest", "rows", "bytes", "splits", "source", "deprecated")
    data = [
        {field: getattr(snapshot, field) for field in fields}
        | {"created_at": snapshot.created_at.isoformat()}
        for snapshot in snapshots
    ]

    def show(console: "Console") -> None:
        if not snapshots:
            wanted = "snapshot"
            if arguments.name:
                wanted = f"snapshot of {arguments.name}"
            console.print(
                f"there is no {wanted} yet; a sweep takes one, as in [bold]halving sweep "
                "sweeps/digits.yaml[/]"
            )
            return
        rows = [
            [
                snapshot.key,
                f"{snapshot.rows:,}",
                size(snapshot.bytes),
                _splits(snapshot.splits),
                f"{snapshot.created_at:%Y-%m-%d %H:%M}",
                snapshot.deprecated or NONE,
            ]
            for snapshot in snapshots
        ]
        print_table(
            console,
            ("snapshot", "rows", "size", "splits", "taken (UTC)", "deprecated"),
            rows,
            right=["rows", "size"],
        )

    return answer(arguments, data, show)


def run_show(arguments: argparse.Namespace) -> int:
    """Show a snapshot.

    JSON: its manifest, with ``deprecated``, and ``deviation``: how far the most uneven shard is from the
    mean, in rows and in bytes.
    """
    backend = backend_of(arguments)
    snapshot, dataset = _find(backend, arguments.snapshot)
    deviation = _deviation(dataset)
    data = {**dataset.manifest, "deprecated": snapshot.deprecated, "deviation": deviation}
    return answer(arguments, data, lambda console: _print_snapshot(console, snapshot, dataset, deviation))


def run_diff(arguments: argparse.Namespace) -> int:
    """Compare two snapshots.

    JSON: ``{"old", "new", "schema", "splits", "columns", "bytes", "rows"}``, as
    :mod:`resources.datasets.diff` has them.
    """
    from resources.datasets.diff import compare, compare_rows

    backend = backend_of(arguments)
    old, old_data = _find(backend, arguments.old)
    new, new_data = _find(backend, arguments.new)
    rows = compare_rows(backend.store, old_data, new_data)
    data = {"old": old.key, "new": new.key, **compare(old_data.manifest, new_data.manifest), "rows": rows}
    return answer(arguments, data, lambda console: _print_diff(console, data))


def run_deprecate(arguments: argparse.Namespace) -> int:
    """Deprecate a snapshot.

    JSON: ``{"key", "digest", "deprecated"}``.
    """
    from resources.datasets.snapshot_catalog import deprecate, find_snapshot

    if not arguments.undo and not arguments.reason.strip():
        raise InvalidInput("--reason = '' is not accepted: say why, for whoever tries to launch on it")
    catalog = backend_of(arguments).catalog
    digest = find_snapshot(catalog, arguments.snapshot).digest
    snapshot = deprecate(catalog, digest, arguments.reason)
    data = {"key": snapshot.key, "digest": snapshot.digest, "deprecated": snapshot.deprecated}
    text = f"{snapshot.key} may be used again"
    if not arguments.undo:
        text = f"{snapshot.key} is deprecated: nothing is launched on it any more; runs that used it keep it"
    return answer(arguments, data, lambda console: console.print(text, highlight=False))


def run_verify(arguments: argparse.Namespace) -> int:
    """Check a snapshot's shards, and the files to which it refers.

    The exit status is 1 if a shard or file is missing, damaged or changed.

    JSON: ``{"key", "shards", "faults": [{"split", "shard", "what"}], "files", "changed": [{"location",
    "what"}]}``.
    """
    from halving.data.shards import shards_of
    from resources.datasets.referenced_files import verify_files
    from resources.datasets.shard_copies import verify

    snapshot, dataset = _find(backend_of(arguments), arguments.snapshot)
    checked = list(verify(dataset))
    faults = [fault for fault in checked if fault is not None]
    bad = {fault.shard for fault in faults}
    whole = [
        shard
        for split in sorted(dataset.splits)
        for shard in shards_of(dataset.manifest, split)
        if shard not in bad
    ]
    files = 0
    changed = []
    for file in verify_files(dataset, whole):
        files += 1
        if file is not None:
            changed.append({"location": file.location, "what": file.change})
    described = [{"split": fault.split, "shard": fault.shard.name, "what": fault.problem} for fault in faults]
    data = {
        "key": snapshot.key,
        "shards": len(checked),
        "faults": described,
        "files": files,
        "changed": changed,
    }

    def show(console: "Console") -> None:
        for fault in described[:_MAX_FAULTS]:
            console.print(
                f"{fault['what']}: {fault['shard']} of the split {fault['split']}",
                style="red",
                highlight=False,
            )
        for file in changed[:_MAX_FAULTS]:
            console.print(file["what"], style="red", highlight=False, markup=False)
        if not faults:
            console.print(
                f"{snapshot.key}: all {len(checked)} shards are as their digests say", highlight=False
            )
        else:
            console.print(
                f"{snapshot.key}: {len(faults)} of {len(checked)} shards are missing or damaged",
                highlight=False,
            )
            console.print(
                f"[bold]halving datasets fetch {snapshot.key} --from STORE[/] brings them back",
                highlight=False,
            )
        if changed:
            console.print(
                f"{snapshot.key}: {len(changed):,} of {files:,} files are not any more what it refers to",
                highlight=False,
            )
        elif files:
            console.print(
                f"{snapshot.key}: all {files:,} files that it refers to are as they were", highlight=False
            )

    answer(arguments, data, show)
    return 1 if faults or changed else 0


def run_fetch(arguments: argparse.Namespace) -> int:
    """Bring back shards.

    JSON: ``{"key", "shards", "fetched", "bytes"}``.
    """
    from halving import Store
    from resources.datasets.shard_copies import REMOTE, fetch

    source = arguments.source or os.environ.get(REMOTE)
    if not source:
        raise InvalidInput(f"--from is missing: give the store that has the shards, or set {REMOTE}")
    snapshot, dataset = _find(backend_of(arguments), arguments.snapshot)
    checked = list(fetch(dataset, Store(source)))
    fetched = [fault.shard for fault in checked if fault is not None]
    total = sum(shard.bytes for shard in fetched)
    data = {"key": snapshot.key, "shards": len(checked), "fetched": len(fetched), "bytes": total}
    text = f"{snapshot.key}: {len(fetched)} of {len(checked)} shards were fetched, {size(total)}"
    return answer(arguments, data, lambda console: console.print(text, highlight=False))


def _find(backend: "Backend", reference: str) -> "tuple[Snapshot, Dataset]":
    from halving import Dataset
    from resources.datasets.snapshot_catalog import find_snapshot

    snapshot = find_snapshot(backend.catalog, reference)
    return snapshot, Dataset(backend.store, snapshot.name, snapshot.digest)


def _deviation(dataset: "Dataset") -> dict[str, float]:
    """How far the most uneven shard of a split is from the split's mean, as a part of it."""
    from halving.data.shards import shards_of

    worst = {"rows": 0.0, "bytes": 0.0}
    for split in dataset.manifest["shards"]:
        shards = shards_of(dataset.manifest, split)
        for field in worst:
            values = [getattr(shard, field) for shard in shards]
            mean = sum(values) / max(1, len(values))
            worst[field] = max([worst[field], *(abs(value / mean - 1) for value in values)])
    return worst


def _splits(splits: dict[str, int]) -> str:
    return ", ".join(f"{name} {rows:,}" for name, rows in sorted(splits.items()))


def _print_snapshot(
    console: "Console", snapshot: "Snapshot", dataset: "Dataset", deviation: dict[str, float]
) -> None:
    from resources.datasets.statistics import all_columns

    manifest = dataset.manifest
    lineage = manifest["lineage"]
    console.print(
        f"[bold]{snapshot.key}[/]  {snapshot.rows:,} rows, {size(snapshot.bytes)}, target {snapshot.target}",
        highlight=False,
    )
    if snapshot.deprecated is not None:
        console.print(f"deprecated: {snapshot.deprecated}", style="yellow", highlight=False, markup=False)
    shards = {split: len(entries) for split, entries in manifest["shards"].items()}
    console.print(f"splits: {_splits(snapshot.splits)}; {sum(shards.values())} shards", highlight=False)
    if max(shards.values()) > 1:
        uneven = f"{deviation['rows']:.1%} in rows, {deviation['bytes']:.1%} in bytes"
        console.print(f"the most uneven shard is off its split's mean by {uneven}", highlight=False)
    console.print(f"source: {_facts(lineage['source'])}", highlight=False, markup=False)
    console.print(f"taken {lineage['made_at']}, digest {snapshot.digest}", highlight=False)
    console.print(
        f"schema {snapshot.schema_sha256[:16]}; after {lineage['before'] or 'no other snapshot'}",
        highlight=False,
    )
    whole = all_columns(manifest)
    rows = []
    for name, kind in manifest["schema"].items():
        column = whole[name]
        bounds = [_bound_text(column.get("min")), _bound_text(column.get("max"))]
        rows.append([name, kind, column["nulls"], *bounds])
    print_table(console, ("column", "type", "nulls", "min", "max"), rows, right=["nulls", "min", "max"])
    if classes := whole[snapshot.target].get("classes"):
        console.print(f"classes: {_splits(classes)}", highlight=False)


def _facts(facts: dict[str, Any]) -> str:
    """The lineage of a source in words, with the facts of its parts in brackets."""

    def text_of(value: Any) -> str:
        if isinstance(value, dict):
            return f"({_facts(value)})"
        if isinstance(value, list):
            return " and ".join(value)
        return str(value)

    return ", ".join(f"{name} {text_of(value)}" for name, value in facts.items() if name != "kind")


def _bound_text(value: Any) -> str:
    """The smallest or largest value of a column, for a table."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)[:24]


def _print_diff(console: "Console", data: dict[str, Any]) -> None:
    console.print(f"[bold]{data['old']}[/] → [bold]{data['new']}[/]", highlight=False)
    for change, columns in data["schema"].items():
        for name, kind in columns.items():
            kinds = kind
            if isinstance(kind, list):
                kinds = " → ".join(kind)
            console.print(f"column {change}: {name} ({kinds})", highlight=False, markup=False)
    rows = data["rows"]
    table = []
    for split, (before, after) in data["splits"].items():
        changes = [NONE, NONE]
        if rows is not None:
            changes = [f"{rows[change].get(split, 0):,}" for change in ("added", "removed")]
        table.append([split, f"{before:,}", f"{after:,}", *changes])
    print_table(
        console,
        ("split", "before", "after", "added", "removed"),
        table,
        right=["before", "after", "added", "removed"],
    )
    if rows is not None:
        for source, target, count in rows["moved"]:
            console.print(f"{count:,} rows moved from {source} to {target}", style="yellow", highlight=False)
        if not rows["moved"]:
            console.print("no row moved from one split to another")
    console.print(
        f"{size(data['bytes']['new'])} are new, {size(data['bytes']['shared'])} are shared", highlight=False
    )
    for name, (had, has) in data["columns"].items():
        changed = [
            f"{field} {had.get(field, NONE)} → {has.get(field, NONE)}"
            for field in ("nulls", "min", "max")
            if had.get(field) != has.get(field)
        ]
        if had.get("classes") != has.get("classes"):
            changed.append(
                f"classes {_splits(had.get('classes') or {})} → {_splits(has.get('classes') or {})}"
            )
        console.print(f"{name}: {'; '.join(changed)}", highlight=False, markup=False)
