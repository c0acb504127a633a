"""Projects: their owners, weights and quotas.

A project without a row has no quota, and the weight 1.

A project's name is part of the names of its runs' files, which never change. So a rename holds from now on:
earlier sweeps and runs stay where they are and still belong to the project, and its former names mean it in
every spec that still has them.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from halving.errors import AlreadyExists, InvalidInput, NotFound
from halving.identifiers import check_name
from resources.catalog import Catalog, ExperimentRow, ProjectRow, RunRow, SweepRow, TrialRow, utcnow
from resources.tenancy.usage import ALL, NOBODY_ASKS

_MAX_COUNT = 2**31 - 1  # The catalog keeps counts as 32-bit integers.
_SHARED_ONLY = ("max_trials", "max_gpus")


@dataclass(frozen=True)
class ProjectLine:
    """A project with its limits (None is no limit) and what it holds now.

    Attributes:
        name: ``*`` is all projects together.
        searching: how many of its sweeps are searching, without external loops, which train elsewhere.
        trials, gpus: how many these sweeps hold now.
        gpus_waiting: how many of ``gpus`` belong to trials that still wait for their devices, or for a node.
        waiting: sweep to why it waits: spent GPU-hours, a quota, or the shares of other projects.
    """

    name: str
    owners: list[str]
    weight: float
    max_trials: int | None
    max_gpus: int | None
    gpu_hours: float | None
    former_names: list[str]
    searching: int
    trials: int
    gpus: int
    gpus_waiting: int
    waiting: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """The line as plain data, for ``--json``."""
        return asdict(self)


@dataclass
class _Holding:
    searching: int = 0
    trials: int = 0
    gpus: int = 0
    gpus_waiting: int = 0
    waiting: dict[str, str] = field(default_factory=dict)


def list_projects(catalog: Catalog) -> list[ProjectLine]:
    """Every project that has a row or a searching sweep, by name; all projects together come first."""
    with catalog.read() as session:
        rows = {row.name: row for row in session.scalars(select(ProjectRow))}
        sweeps = _holdings(session)
        called = names_now(session)
    sums = {name: _Holding() for name in rows}
    for sweep, project, waiting, trials, gpus, gpus_waiting in sweeps:
        for name in {called.get(project, project), *({ALL} & rows.keys())}:
            total = sums.setdefault(name, _Holding())
            total.searching += 1
            total.trials += int(trials)
            total.gpus += int(gpus)
            total.gpus_waiting += int(gpus_waiting)
            if waiting and name != ALL:
                total.waiting[sweep] = waiting
    return [_line(name, rows.get(name), sums[name]) for name in sorted(sums)]


def show_project(catalog: Catalog, name: str) -> ProjectLine:
    """One project, by its present name or a former one.

    Raises:
        NotFound: it has neither a row nor a sweep.
    """
    with catalog.read() as session:
        row = row_of(session, name)
        exists = row is not None or _has_sweeps(session, name)
    if not exists:
        raise NotFound(f"no project {name!r} in the catalog: it has no sweep, and nothing was set for it")
    lines = {line.name: line for line in list_projects(catalog)}
    present_name = name
    if row is not None:
        present_name = row.name
    return lines.get(present_name) or _line(name, None, _Holding())


def set_project(catalog: Catalog, name: str, **settings: Any) -> ProjectRow:
    """Set some of a project's settings; the others stay.

    They hold for trials that are started from now on. Running trials beyond a lowered quota run to their next
    rung.

    Args:
        settings: ``owners``, ``weight``, ``max_trials``, ``max_gpus`` or ``gpu_hours``; for ``*``, all
            projects together, only ``max_trials`` and ``max_gpus``. None removes a limit.

    Raises:
        InvalidInput: the name or a value is not accepted, or the project is called otherwise now.
    """
    if name == ALL:
        if other := sorted(settings.keys() - set(_SHARED_ONLY)):
            raise InvalidInput(
                f"{other[0]} is not accepted for {ALL!r}, all projects together: give max_trials or max_gpus"
            )
    else:
        check_name("project", name)
    checked = {field: _CHECKS[field](field, value) for field, value in settings.items()}
    if not checked:
        accepted: Iterable[str] = _CHECKS
        if name == ALL:
            accepted = _SHARED_ONLY
        raise InvalidInput(f"nothing is given for project {name!r}: give {', '.join(accepted)}")
    with catalog.write(exclusive=True) as session:
        row = row_of(session, name)
        if row is not None and row.name != name:
            raise InvalidInput(f"project {name!r} is called {row.name!r} now: give that name")
        if row is None:
            row = _new(name)
            session.add(row)
        for field, value in checked.items():
            setattr(row, field, value)
        return row


def unset_project(catalog: Catalog, name: str) -> list[str]:
    """Remove all settings of a project: it then has no owner, no quota, and the weight 1.

    For ``*`` these are the limits that all projects share. Sweeps that wait for a quota of the project go on.
    If the project was renamed, its names stay; otherwise only its sweeps and runs are left.

    Returns:
        Its former names.

    Raises:
        InvalidInput: the project is called otherwise now.
        NotFound: nothing was set for it.
    """
    with catalog.write(exclusive=True) as session:
        former_names = _take_back(session, name)
    # A request for a place locks its sweep's row and then the rows of projects. So the rows of sweeps are
    # written in a transaction of their own, which holds no row of a project. This is done also if nothing was
    # set, because an earlier call may have been killed between the two transactions.
    with catalog.write(exclusive=True) as session:
        if session.scalar(select(ProjectRow.name).limit(1)) is None:
            # Without any row of a project nobody else would remove the reason why a sweep waits.
            session.execute(NOBODY_ASKS)
    if former_names is None:
        raise NotFound(f"nothing was set for project {name!r}")
    return former_names


def _take_back(session: Session, name: str) -> list[str] | None:
    """Remove all settings of a project; return its former names, or None if nothing was set."""
    row = row_of(session, name)
    if row is None:
        return None
    if row.name != name:
        raise InvalidInput(f"project {name!r} is called {row.name!r} now: give that name")
    if not row.former_names:
        session.delete(row)
        return []
    row.owners = []
    row.weight = 1.0
    row.max_trials = None
    row.max_gpus = None
    row.gpu_hours = None
    return list(row.former_names)


def rename_project(catalog: Catalog, name: str, new: str) -> ProjectRow:
    """Rename a project; it keeps its sweeps, running or not, and its runs stay where they are.

    Raises:
        InvalidInput: the new name is not accepted.
        NotFound: no such project.
        AlreadyExists: another project has, or had, the new name. Two projects cannot be merged.
    """
    if name == ALL or new == ALL:
        raise InvalidInput(f"project = {ALL!r} is not accepted: all projects together have no other name")
    check_name("project", new)
    with catalog.write(exclusive=True) as session:
        row = row_of(session, name)
        of_new = row_of(session, new)
        if row is not None and row.name != name:
            raise InvalidInput(f"project {name!r} is called {row.name!r} now: give that name")
        if row is None and not _has_sweeps(session, name):
            raise NotFound(f"no project {name!r} in the catalog: it has no sweep, and nothing was set for it")
        if of_new is not None and of_new is not row:
            raise AlreadyExists(
                f"new = {new!r} is not accepted: project {of_new.name!r} has, or had, that name; give "
                "another one"
            )
        if of_new is None and (_has_sweeps(session, new) or _has_runs(session, new)):
            raise AlreadyExists(
                f"new = {new!r} is not accepted: there are sweeps or runs of a project of that name; give "
                "another one"
            )
        if row is None:
            row = _new(name)
            session.add(row)
            session.flush()
        row.former_names = sorted({*row.former_names, name} - {new})
        row.name = new
        return row


def row_of(session: Session, name: str) -> ProjectRow | None:
    """A project's row, by a name that it has or had; None if nothing was set for it."""
    row = session.get(ProjectRow, name)
    if row is not None:
        return row
    return next((row for row in session.scalars(select(ProjectRow)) if name in row.former_names), None)


def names_of(session: Session, name: str) -> list[str]:
    """All names under which a project may have sweeps and runs: its present one and former ones."""
    row = row_of(session, name)
    if row is None:
        return [name]
    return [row.name, *row.former_names]


def renamed_projects(catalog: Catalog) -> list[list[str]]:
    """All names of each project that was ever renamed, the present one first."""
    with catalog.read() as session:
        return [
            [row.name, *row.former_names]
            for row in session.scalars(select(ProjectRow).order_by(ProjectRow.name))
            if row.former_names
        ]


def names_now(session: Session) -> dict[str, str]:
    """Former names of projects to the present ones."""
    return {former: row.name for row in session.scalars(select(ProjectRow)) for former in row.former_names}


def all_names_of(session: Session, projects: Iterable[str]) -> list[str]:
    """All names of several projects, each of which is named by any of its names.

    The name of an unknown project stands for itself.
    """
    wanted = set(projects)
    named = ({row.name, *row.former_names} for row in session.scalars(select(ProjectRow)))
    return sorted(wanted.union(*(names for names in named if names & wanted)))


def project_exists(session: Session, name: str) -> bool:
    """Whether a project has a row, a sweep or a run, by any of its names."""
    return row_of(session, name) is not None or _has_sweeps(session, name) or _has_runs(session, name)


def _new(name: str) -> ProjectRow:
    return ProjectRow(name=name, owners=[], weight=1.0, former_names=[], created_at=utcnow())


def _has_sweeps(session: Session, name: str) -> bool:
    return session.scalar(select(SweepRow.id).where(SweepRow.project == name).limit(1)) is not None


def _has_runs(session: Session, name: str) -> bool:
    """Whether the index has runs of a project, of scripts too, or a client that tracks runs has made it."""
    indexed = select(RunRow.id).where(RunRow.project == name)
    tracked = select(ExperimentRow.id).where(ExperimentRow.project == name)
    return any(session.scalar(query.limit(1)) is not None for query in (indexed, tracked))


def _holdings(session: Session) -> Sequence[Any]:
    running = (TrialRow.sweep == SweepRow.id) & (TrialRow.status == "running")
    why = func.coalesce(SweepRow.out_of_gpu_hours, SweepRow.waiting)
    gpus = func.coalesce(func.sum(TrialRow.gpus), 0)
    gpus_waiting = func.coalesce(func.sum(case((TrialRow.waiting.is_not(None), TrialRow.gpus), else_=0)), 0)
    query = select(SweepRow.id, SweepRow.project, why, func.count(TrialRow.number), gpus, gpus_waiting)
    query = query.outerjoin(TrialRow, running).where(SweepRow.status == "searching", SweepRow.driver != "api")
    return session.execute(query.group_by(SweepRow.id).order_by(SweepRow.id)).all()


def _line(name: str, row: ProjectRow | None, held: _Holding) -> ProjectLine:
    row = row or _new(name)
    fields = ("owners", "weight", "max_trials", "max_gpus", "gpu_hours", "former_names")
    return ProjectLine(name, **{field: getattr(row, field) for field in fields}, **vars(held))


def _owners(field: str, value: Any) -> list[str]:
    owners = [value] if isinstance(value, str) else list(value)
    for owner in owners:
        if not isinstance(owner, str) or not 1 <= len(owner.strip()) <= 250:
            raise InvalidInput(
                f"{field} = {owner!r:.80} is not accepted: give names of at most 250 characters"
            )
    return sorted({owner.strip() for owner in owners})


def _weight(field: str, value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0.001 <= value <= 1000
    ):
        raise InvalidInput(
            f"{field} = {value!r:.80} is not accepted: give a number from 0.001 to 1000; 2 is twice the "
            "share of 1"
        )
    return float(value)


def _count(field: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
        raise InvalidInput(
            f"{field} = {value!r:.80} is not accepted: give a whole number from 0, or none for no limit"
        )
    return value


def _hours(field: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidInput(
            f"{field} = {value!r:.80} is not accepted: give hours of one GPU in a month, from 0, or none "
            "for no limit"
        )
    return float(value)


_CHECKS = {
    "owners": _owners,
    "weight": _weight,
    "max_trials": _count,
    "max_gpus": _count,
    "gpu_hours": _hours,
}
