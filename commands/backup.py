"""``halving backup`` and ``halving restore``."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of, console_of, existing_backend
from halving.cli.output import print_table
from halving.cli.parser import add_command
from halving.text import local_time, size

if TYPE_CHECKING:
    from halving import Store


def add_backup_commands(commands: Any) -> None:
    """Add both commands."""
    place = "the folder or s3://bucket/prefix where backups are"
    description = (
        "copy the store and the catalog to another place; what an earlier backup has is not copied again"
    )
    backup = add_command(
        commands, "backup", description, run_backup, place=place
    ).add_mutually_exclusive_group()
    backup.add_argument(
        "--keep",
        type=_keep,
        metavar="N",
        help="when it is made, delete all of this store's backups there but the newest N",
    )
    backup.add_argument("--list", action="store_true", help="make none: list those that there are")
    description = (
        "restore a backup into an empty store (--root, HALVING_ROOT) and an empty catalog (HALVING_CATALOG)"
    )
    restore = add_command(commands, "restore", description, run_restore, place=place)
    restore.add_argument(
        "--backup", metavar="ID", help="which one (default: the newest, where all are of one store)"
    )


def run_backup(arguments: argparse.Namespace) -> int:
    """Make a backup, and delete old ones.

    The exit status is 1 where the backup lacks contents that the catalog names; then no old one is deleted.

    JSON: ``{"backup", "place", "of", "files", "bytes", "copied", "copied_bytes", "rows", "revision",
    "seconds", "missing", "pruned"}``. ``of`` is the store's root, ``copied`` counts contents that the place
    did not have, and ``rows`` those of the catalog by table. ``missing`` are contents that the catalog names
    and the store lacks: ``[{"digest", "what"}]``. ``pruned`` is what was deleted: ``{"backups", "contents",
    "bytes"}``; null without ``--keep``, or where something is missing. With ``--list``: see
    :func:`_list_backups`.
    """
    from halving import Store
    from resources.upkeep.backup import back_up
    from resources.upkeep.old_backups import prune_after

    place = Store(arguments.place)
    if arguments.list:
        return _list_backups(arguments, place)
    backend = existing_backend(arguments)
    with _progress(arguments, "copied") as progress:
        made = back_up(backend.store, backend.catalog, place, progress)
    manifest = made.manifest
    pruned = None
    if arguments.keep:
        pruned = prune_after(place, backend.store.root, arguments.keep, made)
    data: dict[str, Any] = {
        "backup": manifest.id,
        "place": place.root,
        "of": manifest.root,
        "files": manifest.count,
        "bytes": manifest.bytes,
        "copied": made.copied,
        "copied_bytes": made.copied_bytes,
        "rows": dict(manifest.rows),
        "revision": manifest.revision,
        "seconds": made.seconds,
        "missing": [{"digest": content.digest, "what": content.title} for content in made.missing],
        "pruned": None,
    }
    text = (
        f"backup {manifest.id} of {manifest.root}: {manifest.count} files, {size(manifest.bytes)}, and "
        f"{sum(manifest.rows.values())} rows of the catalog"
    )
    text += f"; {made.copied} files, {size(made.copied_bytes)}, were new; {made.seconds:.1f} s"
    if pruned:
        data["pruned"] = asdict(pruned)
        text += (
            f"\n{len(pruned.backups)} older backups went, and {pruned.contents} files that no other one "
            f"has, {size(pruned.bytes)}"
        )
    if made.problem:
        text += f"\n{made.problem}"
    text += f"\nto restore it: halving restore {place.root} --backup {manifest.id}"
    answer(
        arguments, data, lambda console: console.print(text, highlight=False, markup=False, soft_wrap=True)
    )
    return 1 if made.missing else 0


def _list_backups(arguments: argparse.Namespace, place: "Store") -> int:
    """List a place's backups, oldest first.

    JSON: ``{"place", "backups": [{"backup", "began", "root", "files", "bytes", "missing"}]}``; ``missing``
    counts the contents that the backup's catalog names and the backup lacks.
    """
    from resources.upkeep.backup_files import backups_of, read_manifests

    rows: list[dict[str, Any]] = []
    for manifest in read_manifests(place, backups_of(place)):
        began = datetime.fromtimestamp(manifest.began, UTC).isoformat()
        sizes = {"files": manifest.count, "bytes": manifest.bytes, "missing": manifest.missing}
        rows.append({"backup": manifest.id, "began": began, "root": manifest.root, **sizes})

    def show(console: Any) -> None:
        if not rows:
            console.print(f"there are no backups in {place.root}", highlight=False, markup=False)
            return
        table = [
            [
                row["backup"],
                local_time(row["began"]),
                row["root"],
                row["files"],
                size(row["bytes"]),
                row["missing"],
            ]
            for row in rows
        ]
        print_table(
            console,
            ("backup", "began", "of", "files", "bytes", "missing"),
            table,
            right=("files", "bytes", "missing"),
            first=True,
        )

    return answer(arguments, {"place": place.root, "backups": rows}, show)


def _keep(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not accepted: give how many backups to keep, 1 or more"
        )
    return int(text)


def run_restore(arguments: argparse.Namespace) -> int:
    """Restore a backup.

    JSON: ``{"backup", "of", "root", "files", "bytes", "missing", "rows", "seconds", "problems"}``. ``of`` is
    the root of the store that was backed up, ``missing`` counts the contents that the backup's catalog names
    and the backup lacks, and ``problems`` are models that could not be published.
    """
    from halving import Store
    from resources.catalog.opening import url_of_catalog
    from resources.upkeep.restore import restore

    backend = backend_of(arguments)
    url = url_of_catalog(backend.store, backend.catalog_url)
    place = Store(arguments.place)
    with _progress(arguments, "restored") as progress:
        done = restore(place, backend.store, lambda: backend.catalog, arguments.backup, progress, url=url)
    manifest = done.manifest
    data = {
        "backup": manifest.id,
        "of": manifest.root,
        "root": backend.store.root,
        "files": manifest.count,
        "bytes": manifest.bytes,
        "missing": manifest.missing,
        "rows": dict(manifest.rows),
        "seconds": done.seconds,
        "problems": done.problems,
    }
    text = (
        f"backup {manifest.id} of {manifest.root} is restored into {backend.store.root}: {manifest.count} "
        f"files, {size(manifest.bytes)}, "
    )
    text += f"{sum(manifest.rows.values())} rows of the catalog; {done.seconds:.1f} s\n"
    text += (
        "halving index brings the index of runs up to date, a server does so by itself; sweeps go on when "
        "they are launched again"
    )
    if manifest.missing:
        text += (
            f"\nit lacks {manifest.missing} contents that its catalog names: halving doctor --all says "
            "which; an earlier one may have them"
        )
    text = "\n".join([text, *done.problems])
    answer(
        arguments, data, lambda console: console.print(text, highlight=False, markup=False, soft_wrap=True)
    )
    return 0


@contextmanager
def _progress(arguments: argparse.Namespace, verb: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function that shows how many files are done; None where there is no terminal."""
    from rich.live import Live
    from rich.text import Text

    console = console_of(arguments)
    if not console.is_terminal:
        yield None
        return
    with Live(Text("listing files"), console=console, refresh_per_second=4, transient=True) as live:
        yield lambda done, count: live.update(Text(f"{done} of {count} files {verb}"))
