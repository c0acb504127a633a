"""``halving runs tag``, ``archive``, ``delete`` and ``restore``, and the catalog's part of lists of runs.

:func:`tag_run` and :func:`change_run` are these commands for the SDK (:mod:`halving.run.lifecycle`).
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from commands.shared import answer, backend_of
from halving.cli.parser import add_command
from halving.errors import HalvingError, InvalidInput

if TYPE_CHECKING:
    from halving import Store
    from halving.query.run_filter import RunFilter
    from halving.query.runs import RunInfo
    from halving.records.amendments import Lifecycle
    from resources.backend import Backend
    from resources.catalog import Catalog

_BECOMES: "dict[str, Lifecycle]" = {"archive": "archived", "delete": "deleted", "restore": "active"}
_PATIENCE = 2.0
"""Seconds to wait for a catalog that is only read for how paused trials ended."""
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
    """List runs by the SDK's command, with what the catalog knows. JSON: as there.

    ``--view`` has the filter, order and columns of a saved view. A renamed project is listed by each of its
    names, and a trial that never goes on is stopped, not paused.
    """
    from halving.cli.runs import run_runs

    if arguments.view is not None:
        from commands.views import apply_view

        apply_view(arguments)
    return run_runs(arguments, _with_all_names, _with_outcomes)


def run_details(arguments: argparse.Namespace) -> int:
    """Show a run by the SDK's command; a trial that never goes on is stopped, not paused. JSON: as there."""
    from halving.cli.show import run_show

    return run_show(arguments, _with_outcomes)


def _with_all_names(store: "Store", wanted: "RunFilter") -> "RunFilter":
    """A filter with all names of its projects, by the catalog, which a filter without projects needs not."""
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
    """The runs with their outcomes by the catalog, or by their records while the catalog is away.

    The catalog is opened only where a run is a paused trial.
    """
    if not any(run.status == "paused" and "sweep" in run.parent for run in runs):
        return runs
    from sqlalchemy.exc import SQLAlchemyError

    from resources.analysis.run_index.outcomes import with_stopped_runs
    from resources.catalog.opening import catalog_at_hand
    from resources.catalog.retry import catalog_is_away

    try:
        catalog = catalog_at_hand(store, patience=_PATIENCE)
        if catalog is None:
            return runs
        return with_stopped_runs(catalog, runs)
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

    changes: dict[str, str | None] = {}
    for text in arguments.tags:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidInput(f"tag {text!r} is not accepted: give KEY=VALUE, or KEY= to take it away")
        changes[key] = value or None
    backend = backend_of(arguments)
    project, run = find_run(backend.store, arguments.run_name)
    tags = _set_tags(backend.store, backend.catalog, project, run, changes)
    data = {"project": project, "run": run, "tags": tags}
    listed = ", ".join(f"{name} = {value}" for name, value in tags.items())
    text = f"{project}/{run} has {listed or 'no tags'}"
    return answer(arguments, data, lambda console: console.print(text, highlight=False, markup=False))


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
    """Change each run by itself: a run that is refused does not keep the others from being changed."""
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
            row["changed"] = _set_lifecycle(backend.store, backend.catalog, project, run, lifecycle)
        except HalvingError as error:
            row |= {"lifecycle": None, "error": str(error)}
        rows.append(row)

    def show(console: Any) -> None:
        for row in rows:
            if row["error"]:
                console.print(row["error"], style="red", highlight=False, markup=False)
                continue
            text = f"{row['project']}/{row['run']} is {lifecycle}: {then(backend, row['project'])}"
            console.print(text, highlight=False, markup=False)

    answer(arguments, {"runs": rows}, show)
    return 1 if any(row["error"] for row in rows) else 0


def tag_run(store: "Store", run: str, tags: Mapping[str, str | None]) -> dict[str, str]:
    """Tag a run of a store and its catalog; returns all tags that it has then."""
    from halving.query.runs import find_run
    from resources.catalog.opening import open_catalog

    # The run is looked up first, because opening the catalog makes one, even where there is no store.
    project, name = find_run(store, run)
    return _set_tags(store, open_catalog(store), project, name, tags)


def change_run(store: "Store", run: str, action: str) -> bool:
    """Change a run of a store and its catalog; returns whether anything changed.

    Args:
        action: the name of a command, such as ``delete``.
    """
    from halving.query.runs import find_run
    from resources.catalog.opening import open_catalog

    project, name = find_run(store, run)
    return _set_lifecycle(store, open_catalog(store), project, name, _BECOMES[action])


def _set_tags(
    store: "Store", catalog: "Catalog", project: str, run: str, tags: Mapping[str, str | None]
) -> dict[str, str]:
    from resources.registry.by_hand import user
    from resources.retention.lifecycle import set_tags

    with catalog.write() as session:
        return set_tags(session, store, project, run, tags, actor=user())


def _set_lifecycle(
    store: "Store", catalog: "Catalog", project: str, run: str, lifecycle: "Lifecycle"
) -> bool:
    from resources.registry.by_hand import user
    from resources.retention.lifecycle import set_lifecycle

    with catalog.write() as session:
        return set_lifecycle(session, store, project, run, lifecycle, actor=user())


def _until(backend: "Backend", project: str) -> str:
    """Until when a deleted run can be restored, in a sentence."""
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
