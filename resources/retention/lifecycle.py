"""Tagging, archiving, deleting and restoring of runs, for commands, the API, the page and MLflow's clients.

The truth is in the run's folder (:mod:`halving.records.amendments`), so that the catalog can be rebuilt from
the store at any time. A change is written there first, in a transaction of the catalog that locks the row of
a tracked run and updates the index.
"""

import re
from collections.abc import Collection, Mapping

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from halving.query.runs import RUNNING, RunInfo, read_run
from halving.records.amendments import DELETED, REMOVED, Amendment, Lifecycle, amend, with_lifecycle
from halving.store.store import Store
from resources.analysis.run_index.write import count_revision
from resources.catalog import ExperimentRow, RunRow, TrackedRunRow
from resources.retention.reached import reached_by
from resources.tracking import runs as tracking
from resources.tracking.runs import Tracked

MAX_TAG_LENGTH = 5_000
"""Characters of a tag's value."""
_MAX_NAME_LENGTH = 250
_NOT_STORABLE = re.compile("[\0\ud800-\udfff]")  # in databases and in JSON in UTF-8


def set_lifecycle(
    session: Session, store: Store, project: str, run: str, lifecycle: Lifecycle, *, actor: str
) -> bool:
    """Archive, delete or restore (make active) a run, within a transaction that writes.

    A deleted run lies in the trash until the policy's days are over (:mod:`resources.retention.trash`).

    Returns:
        Whether anything changed.

    Raises:
        NotFound: there is no such run.
        InvalidInput: it is to be deleted although it is running, or a champion, a staging version, a report
            or an open sweep needs it; or it is being removed.
    """
    tracked = lock_row(session, project, run)
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
        amend(store, _folder(project, run), lambda before: _restage(before, info, lifecycle, actor))
    _index(session, project, [run], lifecycle)
    return True


def set_lifecycle_of_some(
    session: Session, store: Store, experiment: ExperimentRow, lifecycle: Lifecycle, *, actor: str
) -> bool:
    """Delete or restore some runs with their experiment, in a transaction that writes.

    Returns:
        Whether there were any.
    """
    changed = tracking.set_stage_of_some(session, store, experiment, lifecycle, actor)
    if changed:
        _index(session, experiment.project, changed, lifecycle)
    return bool(changed)


def _check_deletable(session: Session, store: Store, info: RunInfo, tracked: Tracked | None) -> None:
    name = f"{info.project}/{info.run}"
    # The client of a tracked run learns of it at its next request.
    if info.status == RUNNING and tracked is None:
        raise InvalidInput(f"run {name} is not deleted: it is running; stop it first")
    if reason := reached_by(session, store, info.project, info.run):
        raise InvalidInput(f"run {name} is not deleted: it {reason}")


def set_tags(
    session: Session, store: Store, project: str, run: str, tags: Mapping[str, str | None], *, actor: str
) -> dict[str, str]:
    """Set a run's tags, and delete those whose value is None, within a transaction that writes.

    Returns:
        All tags that the run has then.

    Raises:
        NotFound: there is no such run.
        InvalidInput: a name or a value is not accepted.
    """
    for name, value in tags.items():
        _check_tag(name, value)
    tracked = lock_row(session, project, run)
    info = read_run(store, project, run)
    if tracked is not None:
        old_tags = tracking.of_items(tracked.row.tags)
        tracking.log(
            store, tracked, tags=[(name, value) for name, value in tags.items() if value is not None]
        )
        for name in [name for name, value in tags.items() if value is None and name in old_tags]:
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


def lock_row(session: Session, project: str, run: str) -> Tracked | None:
    """Lock and return the row of a run that a client tracks over HTTP; None for any other run."""
    row = session.scalar(
        select(TrackedRunRow)
        .join(ExperimentRow, ExperimentRow.id == TrackedRunRow.experiment)
        .where(TrackedRunRow.id == run, ExperimentRow.project == project)
    )
    if row is None:
        return None
    return tracking.find_run(session, run, lock=True)


def _restage(before: Amendment, info: RunInfo, lifecycle: Lifecycle, actor: str) -> Amendment:
    if before.get("lifecycle") == REMOVED:  # A retention has begun to remove it since it was read.
        raise InvalidInput(f"run {info.project}/{info.run} is not accepted: its files are being removed")
    return with_lifecycle(before, lifecycle, actor)


def _index(session: Session, project: str, runs: Collection[str], lifecycle: str) -> None:
    """Write the change into the index at once; its next update reads the rest."""
    count_revision(session)
    changed = (
        update(RunRow)
        .where(RunRow.project == project, RunRow.run.in_(runs))
        .values(lifecycle=lifecycle, look_again=0.0)
    )
    session.execute(changed, execution_options={"synchronize_session": False})


def _check_tag(name: str, value: str | None) -> None:
    # A notebook may give other types; commands and requests give texts.
    if not isinstance(name, str):
        raise InvalidInput(f"tag {name!r} is not accepted: its name is {name!r}; give a text")
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"tag {name!r} is not accepted: its value is {value!r}; give a text")
    if not name or len(name) > _MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidInput(
            f"tag {name[:50]!r} is not accepted: give a name of 1 to {_MAX_NAME_LENGTH} characters"
        )
    if value is not None and (len(value) > MAX_TAG_LENGTH or _NOT_STORABLE.search(value)):
        accepted = f"give at most {MAX_TAG_LENGTH} characters, none of them NUL or half of a surrogate pair"
        raise InvalidInput(f"tag {name} of {len(value)} characters is not accepted: {accepted}")


def _folder(project: str, run: str) -> str:
    return f"runs/project={project}/{run}"
