"""Runs that are tagged, archived, deleted and restored: one notion of it for commands, the API, the page and
MLflow's clients.

The truth is in the run's folder (:mod:`halving.records.amendments`), so that the catalog may be made again
from the store at any time. A change is written there first, in a transaction of the catalog that holds the
row of a tracked run and brings the index up to date.
"""

import re
from collections.abc import Collection, Mapping

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from halving.query.runs import RUNNING, RunInfo, read_run
from halving.records.amendments import DELETED, REMOVED, Amendment, Lifecycle, amend, staged
from halving.store.store import Store
from resources.analysis.run_index.write import count_revision
from resources.catalog import ExperimentRow, RunRow, TrackedRunRow
from resources.retention.reached import reached_by
from resources.tracking import runs as tracking
from resources.tracking.runs import Tracked

LONGEST_TAG = 5_000
"""Characters of a tag's value."""
_LONGEST_NAME = 250
_UNKNOWN = re.compile("[\0\ud800-\udfff]")  # what databases and JSON in UTF-8 do not take


def set_lifecycle(
    session: Session, store: Store, project: str, run: str, lifecycle: Lifecycle, *, actor: str
) -> bool:
    """Archive, delete or restore (make active) a run, within a transaction that writes; whether anything
    changed.

    A deleted run lies in the trash until the policy's days are over (:mod:`resources.retention.trash`).

    Raises:
        NotFound: there is no such run.
        InvalidInput: it is to be deleted, and is running, or a champion, a staging version, a report or an
            open sweep reaches it; or it is being removed.
    """
    tracked = locked(session, project, run)
    info = read_run(store, project, run)
    if info.lifecycle == REMOVED:
        raise InvalidInput(
            f"run {project}/{run} is not accepted: its days in the trash are over, and its files are being "
            "removed"
        )
    if info.lifecycle == lifecycle and (tracked is None or tracked.row.stage == lifecycle):
        return False
    if lifecycle == DELETED:
        _check_deletable(session, store, info, tracked)
    if tracked is not None:
        tracking.set_stage(store, tracked, lifecycle, actor)
    else:
        amend(store, _folder(project, run), lambda before: _restaged(before, info, lifecycle, actor))
    _index(session, project, [run], lifecycle)
    return True


def set_lifecycle_of_some(
    session: Session, store: Store, experiment: ExperimentRow, lifecycle: Lifecycle, *, actor: str
) -> bool:
    """Delete or restore some runs of an experiment, which is deleted or restored, in a transaction that
    writes; whether there were any.
    """
    changed = tracking.set_stage_of_some(session, store, experiment, lifecycle, actor)
    if changed:
        _index(session, experiment.project, changed, lifecycle)
    return bool(changed)


def _check_deletable(session: Session, store: Store, info: RunInfo, tracked: Tracked | None) -> None:
    name = f"{info.project}/{info.run}"
    if info.status == RUNNING and tracked is None:  # a client that tracks one is told at its next request
        raise InvalidInput(f"run {name} is not deleted: it is running; stop it first")
    if reason := reached_by(session, store, info.project, info.run):
        raise InvalidInput(f"run {name} is not deleted: it {reason}")


def set_tags(
    session: Session, store: Store, project: str, run: str, tags: Mapping[str, str | None], *, actor: str
) -> dict[str, str]:
    """Set a run's tags, and take away those whose value is None, within a transaction that writes; all that
    it has then.

    Raises:
        NotFound: there is no such run.
        InvalidInput: a name or a value is not accepted.
    """
    for name, value in tags.items():
        _check_tag(name, value)
    tracked = locked(session, project, run)
    info = read_run(store, project, run)
    if tracked is not None:
        known = tracking.of_items(tracked.row.tags)
        tracking.log(
            store, tracked, tags=[(name, value) for name, value in tags.items() if value is not None]
        )
        for name in [name for name, value in tags.items() if value is None and name in known]:
            tracking.delete_tag(store, tracked, name)
    else:

        def change(before: Amendment) -> Amendment:
            after = {**before.get("tags", info.tags), **tags}
            return {
                **before,
                "tags": {name: value for name, value in after.items() if value is not None},
                "tagged_by": actor,
            }

        amend(store, _folder(project, run), change)
    _index(session, project, [run], info.lifecycle)
    return read_run(store, project, run).tags


def locked(session: Session, project: str, run: str) -> Tracked | None:
    """The run's row, if a client tracks it over HTTP, as it is while nobody else changes it; None: it has
    none.
    """
    row = session.scalar(
        select(TrackedRunRow)
        .join(ExperimentRow, ExperimentRow.id == TrackedRunRow.experiment)
        .where(TrackedRunRow.id == run, ExperimentRow.project == project)
    )
    return None if row is None else tracking.find_run(session, run, lock=True)


def _restaged(before: Amendment, info: RunInfo, lifecycle: Lifecycle, actor: str) -> Amendment:
    if before.get("lifecycle") == REMOVED:  # by who was first
        raise InvalidInput(f"run {info.project}/{info.run} is not accepted: its files are being removed")
    return staged(before, lifecycle, actor)


def _index(session: Session, project: str, runs: Collection[str], lifecycle: str) -> None:
    """Show it at once; the next look at the runs reads the rest."""
    count_revision(session)
    changed = (
        update(RunRow)
        .where(RunRow.project == project, RunRow.run.in_(runs))
        .values(lifecycle=lifecycle, look_again=0.0)
    )
    session.execute(changed, execution_options={"synchronize_session": False})


def _check_tag(name: str, value: str | None) -> None:
    for what, given in (("name", name), ("value", value)):
        # of a notebook; those of commands and requests are texts already
        if not isinstance(given, str) and (given is not None or what == "name"):
            raise InvalidInput(f"tag {name!r} is not accepted: its {what} is {given!r}; give a text")
    if not name or len(name) > _LONGEST_NAME or not name.isprintable():
        raise InvalidInput(
            f"tag {name[:50]!r} is not accepted: give a name of 1 to {_LONGEST_NAME} characters"
        )
    if value is not None and (len(value) > LONGEST_TAG or _UNKNOWN.search(value)):
        accepted = f"give at most {LONGEST_TAG} characters, none of them NUL or half of a surrogate pair"
        raise InvalidInput(f"tag {name} of {len(value)} characters is not accepted: {accepted}")


def _folder(project: str, run: str) -> str:
    return f"runs/project={project}/{run}"
