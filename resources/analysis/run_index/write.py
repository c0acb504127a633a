"""Writing entries into the index's tables.

Each call is one transaction; such transactions take turns by locking the row of the index.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Table, and_, case, delete, insert, or_, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from resources.analysis.run_index.attempt_rows import AttemptColumns
from resources.analysis.run_index.entry import Entry, Value, next_look
from resources.analysis.run_index.run_alerts import raise_run_alerts
from resources.catalog import (
    AHEAD_SECONDS,
    Catalog,
    RunAttemptRow,
    RunIndexRow,
    RunNameRow,
    RunRow,
    RunValueRow,
)

_AT_ONCE = 500  # values in a condition
_TABLES: tuple[Any, ...] = tuple(
    row.__table__ for row in (RunIndexRow, RunRow, RunAttemptRow, RunNameRow, RunValueRow)
)
_INDEX, _RUNS, _ATTEMPTS, _NAMES, _VALUES = _TABLES
_Item = TypeVar("_Item")


def write_entries(
    catalog: Catalog, entries: Sequence[Entry], looks: Sequence[float], now: float | None = None
) -> int:
    """Add or replace runs, and raise the alerts that they have; return how many rows of values changed.

    Args:
        looks: the time of each run's next look.
        now: by the database's clock (default: the catalog's).
    """
    if now is None:
        now = catalog.now()
    if not entries:
        return 0
    with catalog.write() as session:
        revision = count_revision(session)
        ids = _put_runs(
            session,
            [
                {**entry.row, "revision": revision, "look_again": look, "progressed_at": now, "read_at": now}
                for entry, look in zip(entries, looks, strict=True)
            ],
        )
        names = _put_names(session, {key for entry in entries for key in entry.values})
        attempts = {}
        values = {}
        for entry in entries:
            run_id = ids[entry.row["project"], entry.row["run"]]
            attempts[run_id] = entry.attempts
            for key, value in entry.values.items():
                values[names[key], run_id] = value
        _put_attempts(session, attempts)
        raise_run_alerts(session, entries, now)
        return _put_values(session, list(ids.values()), values)


def count_revision(session: Session) -> int:
    """Count a change of the index and return its number; others that do so wait until this one ends."""
    statement = update(_INDEX).values(revision=_INDEX.c.revision + 1).returning(_INDEX.c.revision)
    return int(session.execute(statement).scalar_one())


def postpone(catalog: Catalog, looks: Mapping[int, float], read_at: float | None = None) -> None:
    """Set the next looks of runs, by id; to readers this is no change of the index.

    Args:
        read_at: when the store said that they have not changed; None if they could not be read.
    """
    if not looks:
        return
    with catalog.write() as session:
        _take_turn(session)
        for part in _parts(looks.items()):
            ids = [run_id for run_id, _ in part]
            values: dict[str, Any] = {"look_again": case(dict(part), value=_RUNS.c.id)}
            if read_at is not None:
                values["read_at"] = read_at
            session.execute(update(_RUNS).where(_RUNS.c.id.in_(ids)).values(**values))


def bring_forward(catalog: Catalog, clock: Callable[[], float]) -> bool:
    """Move the next looks at runs forward if the clock was set back; return whether it was.

    Runs are brought forward in parts, each a transaction. Doing so twice changes nothing, so one process may
    go on where another was killed, and several may do it at once.
    """
    with catalog.read() as session:
        refreshed = session.scalar(select(_INDEX.c.refreshed_at)) or 0.0
        if refreshed > clock() + AHEAD_SECONDS:
            catalog.read_clock(session)
    now = clock()
    if refreshed <= now + AHEAD_SECONDS:
        return False
    last: int | None = 0
    while last is not None:
        with catalog.write() as session:
            last = _bring_part_forward(session, last, now)
    with catalog.write() as session:
        session.execute(update(_INDEX).where(_INDEX.c.refreshed_at == refreshed).values(refreshed_at=now))
    return True


def _bring_part_forward(session: Session, after: int, now: float) -> int | None:
    """Bring the next runs after an id forward; return the id of the last, None if there are no more."""
    _take_turn(session)
    columns = [_RUNS.c[name] for name in ("id", "status", "started", "ended", "seconds", "look_again")]
    rows = session.execute(
        select(*columns).where(_RUNS.c.id > after).order_by(_RUNS.c.id).limit(_AT_ONCE)
    ).all()
    looks = {row.id: next_look(dict(row._mapping), now) for row in rows}
    earlier = {row.id: looks[row.id] for row in rows if looks[row.id] < row.look_again}
    if earlier:
        session.execute(
            update(_RUNS)
            .where(_RUNS.c.id.in_(list(earlier)))
            .values(look_again=case(earlier, value=_RUNS.c.id))
        )
    if not rows:
        return None
    return rows[-1].id


def confirm(catalog: Catalog, looks: Mapping[int, float]) -> None:
    """Mark stale runs that cannot be read as read, and set the time of their next look."""
    if not looks:
        return
    with catalog.write() as session:
        revision = count_revision(session)
        for part in _parts(looks.items()):
            ids = [run_id for run_id, _ in part]
            session.execute(
                update(_RUNS)
                .where(_RUNS.c.id.in_(ids))
                .values(look_again=case(dict(part), value=_RUNS.c.id), revision=revision)
            )


def delete_runs(catalog: Catalog, runs: Iterable[tuple[str, str]]) -> int:
    """Delete runs by project and run; return how many there were."""
    deleted = 0
    for part in _parts(runs):
        with catalog.write() as session:
            count_revision(session)
            ids = list(
                session.scalars(select(_RUNS.c.id).where(tuple_(_RUNS.c.project, _RUNS.c.run).in_(part)))
            )
            session.execute(delete(_VALUES).where(_VALUES.c.run_id.in_(ids)))
            session.execute(delete(_ATTEMPTS).where(_ATTEMPTS.c.run_id.in_(ids)))
            session.execute(delete(_RUNS).where(_RUNS.c.id.in_(ids)))
            deleted += len(ids)
    return deleted


def _take_turn(session: Session) -> None:
    session.execute(select(_INDEX.c.id).with_for_update()).all()


def _put_runs(session: Session, rows: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """Add or replace rows of runs; return their ids by project and run."""
    put = _insert(session, _RUNS)
    changed: dict[str, Any] = {name: put.excluded[name] for name in rows[0] if name not in ("project", "run")}
    goes_on = _RUNS.c.progress != put.excluded["progress"]
    changed["progressed_at"] = case((goes_on, put.excluded["progressed_at"]), else_=_RUNS.c.progressed_at)
    session.execute(put.on_conflict_do_update(index_elements=["project", "run"], set_=changed), rows)
    ids: dict[tuple[str, str], int] = {}
    for part in _parts((row["project"], row["run"]) for row in rows):
        statement = select(_RUNS.c.project, _RUNS.c.run, _RUNS.c.id).where(
            tuple_(_RUNS.c.project, _RUNS.c.run).in_(part)
        )
        ids |= {(project, run): run_id for project, run, run_id in session.execute(statement)}
    return ids


def _put_attempts(session: Session, attempts_by_run: dict[int, list[AttemptColumns]]) -> None:
    """Replace the attempts of these runs."""
    for part in _parts(attempts_by_run):
        session.execute(delete(_ATTEMPTS).where(_ATTEMPTS.c.run_id.in_(part)))
    rows = [{"run_id": run_id, **row} for run_id, attempts in attempts_by_run.items() for row in attempts]
    if rows:
        session.execute(insert(_ATTEMPTS), rows)


def _put_names(session: Session, keys: set[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Add the names that are new; return the ids of all.

    Names are never deleted, so an id always means the same name.
    """
    ids = find_names(session, keys)
    new = [{"kind": kind, "name": name} for kind, name in sorted(keys - ids.keys())]
    if new:
        session.execute(_insert(session, _NAMES).on_conflict_do_nothing(), new)
        ids |= find_names(session, {(row["kind"], row["name"]) for row in new})
    return ids


def find_names(session: Session, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """The ids of these names by kind and name; a name that the index does not have is left out."""
    ids: dict[tuple[str, str], int] = {}
    for part in _parts(keys):
        by_kind: dict[str, list[str]] = {}
        for kind, name in part:
            by_kind.setdefault(kind, []).append(name)
        is_key = or_(
            *(and_(_NAMES.c.kind == kind, _NAMES.c.name.in_(names)) for kind, names in by_kind.items())
        )
        statement = select(_NAMES.c.kind, _NAMES.c.name, _NAMES.c.id).where(is_key)
        ids |= {(kind, name): name_id for kind, name, name_id in session.execute(statement)}
    return ids


def _put_values(session: Session, ids: list[int], values: dict[tuple[int, int], Value]) -> int:
    """Replace the values of these runs, by name and run; return how many rows were written or deleted."""
    stored: dict[tuple[int, int], Value] = {}
    columns = [_VALUES.c[name] for name in ("name_id", "run_id", *Value._fields)]
    for part in _parts(ids):
        for name_id, run_id, *rest in session.execute(select(*columns).where(_VALUES.c.run_id.in_(part))):
            stored[name_id, run_id] = Value(*rest)
    obsolete = stored.keys() - values.keys()
    for keys in _parts(obsolete):
        session.execute(delete(_VALUES).where(tuple_(_VALUES.c.name_id, _VALUES.c.run_id).in_(keys)))
    new = [
        {"name_id": name_id, "run_id": run_id, **value._asdict()}
        # sorted into the order of the table
        for (name_id, run_id), value in sorted(values.items(), key=lambda item: item[0])
        if stored.get((name_id, run_id)) != value
    ]
    if new:
        put = _insert(session, _VALUES)
        changed = {name: put.excluded[name] for name in Value._fields}
        session.execute(put.on_conflict_do_update(index_elements=["name_id", "run_id"], set_=changed), new)
    return len(new) + len(obsolete)


def _insert(session: Session, table: Table) -> Any:
    """An insert of the session's database, for ON CONFLICT."""
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _parts(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    left = iter(items)
    while part := list(islice(left, _AT_ONCE)):
        yield part
