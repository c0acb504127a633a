"""``halving share``: a page as a file."""

import argparse
import getpass
import os
import sys
from pathlib import Path
from typing import Any

from halving.cli.output import names_of, print_json
from halving.errors import AlreadyExists, InvalidInput, NotFound
from halving.store.local_files import link_new, write_temporary
from halving.store.store import Store
from halving.text import count_of, size
from resources.analysis.run_index import Refresher
from resources.catalog.opening import open_catalog
from server.sharing.page import BuiltPage, build
from server.sharing.target import Target, parse_target

_REFRESH_SECONDS = 20.0
"""The index of runs may take this long; the runs that it has not read are counted."""
_STANDARD_OUTPUT = "-"


def run_share(arguments: argparse.Namespace) -> int:
    """Write a page, and say on the standard error how large it is and what it holds.

    JSON: ``{"file", "bytes", "title", "runs", "curves", "rows", "left_out", "unread"}``; unread: runs that
    the index does not have yet.
    """
    target = None
    if arguments.json and arguments.output == _STANDARD_OUTPUT:
        raise InvalidInput("--json is not accepted with -o -: the page is there already; give -o FILE")
    if arguments.output != _STANDARD_OUTPUT:
        target = Path(arguments.output)
        _check_target(target, arguments.force)
    store = Store(arguments.root)
    if not store.exists("runs"):
        raise NotFound(f"there are no runs in {store.root} yet: nothing can be shared")
    catalog = open_catalog(store)
    refreshed = Refresher(store, catalog).refresh(_REFRESH_SECONDS)
    kind, name = parse_target(arguments.view, store, catalog)
    page = build(
        store,
        catalog,
        Target(
            kind=kind,
            name=name,
            metrics=tuple(names_of(arguments.metrics) or ()),
            title=arguments.title,
            made_by=_login_name() if arguments.by is None else arguments.by,
        ),
    )
    if target is None:
        sys.stdout.buffer.write(page.html)
    elif arguments.force:
        os.replace(write_temporary(target, [page.html]), target)
    else:
        link_new(target, [page.html])
    unread = refreshed.left + len(refreshed.problems)
    if arguments.json:
        print_json({"file": str(target), **_described(page), "unread": unread})
        return 0
    print(_sentence(page, arguments.output), file=sys.stderr)
    for sentence in page.left_out:
        print(f"  not in it: {sentence}", file=sys.stderr)
    if page.other_metrics:
        print("  --metrics A,B chooses the curves", file=sys.stderr)
    if unread:
        print(f"  {count_of(unread, 'run')} could not be read: halving index says why", file=sys.stderr)
    return 0


def _check_target(target: Path, may_overwrite: bool) -> None:
    if target.is_dir():
        raise AlreadyExists(f"-o {target} is a folder: give a file, such as {target / 'page.html'}")
    if target.exists() and not may_overwrite:
        raise AlreadyExists(f"-o {target} exists already: give another file, or --force to overwrite it")


def _described(page: BuiltPage) -> dict[str, Any]:
    return {
        "bytes": len(page.html),
        "title": page.title,
        "runs": page.runs,
        "curves": page.curves,
        "rows": page.rows,
        "left_out": page.left_out,
    }


def _sentence(page: BuiltPage, name: str) -> str:
    where = name
    if name == _STANDARD_OUTPUT:
        where = "the standard output"
    return (
        f"{where} has {count_of(page.runs, 'run')} with {count_of(page.curves, 'curve')} of at most "
        f"{page.rows} rows, in {size(len(page.html))}: it opens in a browser without a network"
    )


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return ""
