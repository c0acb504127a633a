"""``halving runs tag``, ``archive``, ``delete`` and ``restore``: what becomes of runs, beside ``halving
runs``, which lists them, and ``halving show``, which shows one.

:func:`tag_run` and :func:`change_run` are these commands for the SDK (:mod:`halving.run.lifecycle`).
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from halving.cli.parser import add_command
from halving.errors import HalvingError, InvalidInput
from pipelines.cli_views import answer, backend_of

if TYPE_CHECKING:
    from halving import Store
    from halving.query.run_filter import RunFilter
    from halving.query.runs import RunInfo
    from halving.records.amendments import Lifecycle
    from resources.backend import Backend
    from resources.catalog import Catalog

_BECOMES: "dict[str, Lifecycle]" = {"archive": "archived", "delete": "deleted", "restore": "active"}
_PATIENCE = 2.0
"""Seconds that a catalog is waited for which is only asked how paused trials ended."""
_RUN = "a run's id, the beginning of one, or project/run"


def add_runs_commands(inner: Any) -> None:
    """Add the commands that change runs."""
    tag = add_command(inner, "tag", "tag a run", run_tag, run_name=_RUN)
    tag.add_argument("tags", nargs="+", metavar="KEY=VALUE", help="KEY= takes the tag away")
    for name, summary, run in (
        ("archive", "take runs out of the lists; nothing of them goes away", run_archive),
        (
            "delete",
            "put runs into the trash: restored until the policy's days are over, then removed",
            run_delete,
        ),
        ("restore", "take runs back out of the trash or the archive", run_restore),
    ):
        add_command(inner, name, summary, run).add_argument("run_names", nargs="+", metavar="RUN", help=_RUN)


def run_list(arguments: argparse.Namespace) -> int:
    """List runs as the SDK's command does, but with what the catalog knows. JSON: as there.

    A project that was renamed is meant by each of its names, and a trial that never goes on is stopped, not
    paused.
    """
    from halving.cli.runs import run_runs

    return run_runs(arguments, _with_all_names, _with_outcomes)


def run_details(arguments: argparse.Namespace) -> int:
    """Show a run as the SDK's command does, but a trial that never goes on is stopped, not paused.

    JSON: as there.
    """
    from halving.cli.show import run_show

    return run_show(arguments, _with_outcomes)


def _with_all_names(store: "Store", wanted: "RunFilter") -> "RunFilter":
    """The filter by all names of projects, which the catalog knows; others need no catalog."""
    if not wanted.names_project:
        return wanted
    from resources.analysis.run_index.project_names import with_all_names
    from resources.catalog.opening import catalog_at_hand

    catalog = catalog_at_hand(store)
    if catalog is None:
        return wanted
    with catalog.read() as session:
        return with_all_names(session, wanted)


def _with_outcomes(store: "Store", runs: "list[RunInfo]") -> "list[RunInfo]":
    """The runs as the catalog says that they ended, or as their records do while it is away.

    Where none is a paused trial, it is not opened.
    """
    if not any(run.status == "paused" and "sweep" in run.parent for run in runs):
        return runs
    from sqlalchemy.exc import SQLAlchemyError

    from resources.analysis.run_index.outcomes import with_stopped_runs
    from resources.catalog.opening import catalog_at_hand
    from resources.catalog.retry import catalog_is_away

    try:
        catalog = catalog_at_hand(store, patience=_PATIENCE)
        return runs if catalog is None else with_stopped_runs(catalog, runs)
    except SQLAlchemyError as error:
        if not catalog_is_away(error):
            raise
        print(
            "note: the catalog is away, so that a trial which its sweep stopped is shown as paused",
            file=sys.stderr,
        )
        return runs


def run_tag(arguments: argparse.Namespace) -> int:
    """Tag a run. JSON: ``{"project", "run", "tags"}``, with all tags that it has then."""
    from halving.query.runs import find_run

    given: dict[str, str | None] = {}
    for text in arguments.tags:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"tag {text!r} is not accepted: give KEY=VALUE, or KEY= to take it away")
        given[key] = value or None
    backend = backend_of(arguments)
    project, run = find_run(backend.store, arguments.run_name)
    tags = _tagged(backend.store, backend.catalog, project, run, given)
    data = {"project": project, "run": run, "tags": tags}
    told = ", ".join(f"{name} = {value}" for name, value in tags.items()) or "no tags"
    return answer(
        arguments,
        data,
        lambda console: console.print(f"{project}/{run} has {told}", highlight=False, markup=False),
    )


def run_archive(arguments: argparse.Namespace) -> int:
    """Archive runs. JSON: as :func:`run_delete`."""
    return _change(
        arguments,
        _BECOMES["archive"],
        lambda *_: "it is listed for lifecycle = archived; halving runs restore takes it back",
    )


def run_delete(arguments: argparse.Namespace) -> int:
    """Delete runs.

    JSON: ``{"runs": [{"project", "run", "lifecycle", "changed", "error"}]}``; ``error`` is why a run stays as
    it is, or null. The exit status is 1 if there is one.
    """
    return _change(arguments, _BECOMES["delete"], _until)


def run_restore(arguments: argparse.Namespace) -> int:
    """Restore runs. JSON: as :func:`run_delete`."""
    return _change(arguments, _BECOMES["restore"], lambda *_: "it is listed again")


def _change(
    arguments: argparse.Namespace, lifecycle: "Lifecycle", then: "Callable[[Backend, str], str]"
) -> int:
    """Change each run by itself: one that is refused does not keep the others."""
    from halving.query.runs import find_run

    backend = backend_of(arguments)
    rows: list[dict[str, Any]] = []
    for project, run in [find_run(backend.store, name) for name in arguments.run_names]:
        row: dict[str, Any] = {
            "project": project,
            "run": run,
            "lifecycle": lifecycle,
            "changed": False,
            "error": None,
        }
        try:
            row["changed"] = _changed(backend.store, backend.catalog, project, run, lifecycle)
        except HalvingError as error:
            row |= {"lifecycle": None, "error": str(error)}
        rows.append(row)

    def show(console: Any) -> None:
        for row in rows:
            said = (
                row["error"]
                or f"{row['project']}/{row['run']} is {lifecycle}: {then(backend, row['project'])}"
            )
            console.print(said, style="red" if row["error"] else None, highlight=False, markup=False)

    answer(arguments, {"runs": rows}, show)
    return 1 if any(row["error"] for row in rows) else 0


def tag_run(store: "Store", run: str, tags: Mapping[str, str | None]) -> dict[str, str]:
    """Tag a run of a store and its catalog, as :func:`run_tag` does: all tags that it has then."""
    from halving.query.runs import find_run
    from resources.catalog.opening import open_catalog

    project, name = find_run(store, run)  # before a catalog is made where there is no store
    return _tagged(store, open_catalog(store), project, name, tags)


def change_run(store: "Store", run: str, action: str) -> bool:
    """Change a run of a store and its catalog by one of the commands' words, such as ``delete``; whether
    anything changed.
    """
    from halving.query.runs import find_run
    from resources.catalog.opening import open_catalog

    project, name = find_run(store, run)
    return _changed(store, open_catalog(store), project, name, _BECOMES[action])


def _tagged(
    store: "Store", catalog: "Catalog", project: str, run: str, tags: Mapping[str, str | None]
) -> dict[str, str]:
    from resources.registry.by_hand import user
    from resources.retention.lifecycle import set_tags

    with catalog.write() as session:
        return set_tags(session, store, project, run, tags, actor=user())


def _changed(store: "Store", catalog: "Catalog", project: str, run: str, lifecycle: "Lifecycle") -> bool:
    from resources.registry.by_hand import user
    from resources.retention.lifecycle import set_lifecycle

    with catalog.write() as session:
        return set_lifecycle(session, store, project, run, lifecycle, actor=user())


def _until(backend: "Backend", project: str) -> str:
    from resources.catalog import utcnow
    from resources.retention.policy_file import load_policy

    try:
        days = load_policy(backend.store).policy.of(project).trash.days
    except HalvingError as error:
        return f"halving runs restore takes it back; until when is not known: {error}"
    if days is None:
        return "halving runs restore takes it back; no policy empties the trash"
    until = f"{utcnow() + timedelta(days=days):%Y-%m-%d}"
    return (
        f"halving runs restore takes it back until {until} ({days:g} days), then halving retention removes it"
    )
