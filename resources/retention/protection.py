"""What retention must not touch, and why: runs that led to champions, staging versions and reports, and blobs
that the catalog names.
"""

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from halving import Store
from halving.errors import NotFound
from resources.catalog import (
    Catalog,
    IntentRow,
    ModelVersionRow,
    RegistryEventRow,
    ReportRow,
    RungResultRow,
    SweepRow,
    TrialRow,
)
from resources.catalog.trial_key import trial_key
from resources.retention.ownership import check_is_own
from resources.scheduling.intents import OPEN as UNSETTLED
from resources.scheduling.sweeps import OPEN

Run = tuple[str, str]
"""``(project, run)``."""
_ROWS = 10_000  # of the catalog, at a time
NONE = "none"
"""``TrialRow.checkpoints_left`` where retention has left none."""


class Reason(NamedTuple):
    """Why a run is protected: which kind of reason, for counting, and which one, as a sentence."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Protected:
    """What stays as it is.

    Attributes:
        runs: with all their points, media and artifacts; and why.
        sources: of them those that somebody goes on from, or that are searched: with all their checkpoints,
            too.
        blobs: digests of versions and reports, and of what these are made of; they stay although their runs
            are not protected.
        registered: runs of any version, also an archived one; their artifacts stay.
    """

    runs: Mapping[Run, Reason]
    sources: frozenset[Run]
    blobs: frozenset[str]
    registered: frozenset[Run]


def protected(store: Store, catalog: Catalog) -> Protected:
    """What the registry, the reports and unfinished sweeps reach.

    Runs: of champions and staging versions, of every report's winner, and all of sweeps that are not
    finished. Blobs: every report that there is or that an event of the registry names, the manifest and the
    checkpoint of every version, because an archived one may be made champion again. What of trials'
    checkpoints is kept is :mod:`resources.retention.ended_trials`' to say.

    Raises:
        InvalidInput: the store has something of sweeps or versions that the catalog lacks, so what these
            reach is unknown.
        NotFound: a report's content is gone from the store.
    """
    check_is_own(store, catalog)
    with catalog.read() as session:
        searched = _searched(session)
        sources = going_on_from(session)
        versions = list(session.scalars(select(ModelVersionRow)))
        registered = frozenset((row.project, row.run) for row in versions if row.project and row.run)
        blobs = {digest for row in versions for digest in (row.checkpoint, row.manifest) if digest}
        runs = {**_reported(session, store), **_of_versions(versions), **sources, **searched}
        return Protected(
            runs, frozenset({*searched, *sources}), frozenset(blobs | _reports(session, store)), registered
        )


def project_of(sweep: SweepRow) -> str:
    """The project in which a sweep's trials are runs."""
    return sweep.project


def in_project(project: str) -> ColumnElement[bool]:
    """The sweeps of a project, for a statement."""
    return SweepRow.project == project


def going_on_from(session: Session) -> dict[Run, Reason]:
    """The runs whose checkpoints unfinished training runs are to go on from: they may not have begun, and a
    retry goes back to it.
    """
    specs: dict[str, Any] = {
        row.id: row.spec for row in session.scalars(select(SweepRow).where(SweepRow.status.in_(OPEN)))
    }
    specs |= {
        row.sweep: row.payload["spec"]
        for row in session.scalars(select(IntentRow).where(IntentRow.status.in_(UNSETTLED)))
    }
    restored = ((sweep, source) for sweep, spec in specs.items() if (source := spec.get("restored_from")))
    return {
        (source["project"], source["run"]): Reason(
            "a training goes on from it", f"the training run {sweep} goes on from it"
        )
        for sweep, source in restored
    }


def warm_starting(session: Session) -> dict[str, str]:
    """The sweeps that unfinished ones learn from, and which these are."""
    found: dict[str, str] = {}
    for row in session.scalars(select(SweepRow).where(SweepRow.status.in_(OPEN))):
        found.update(dict.fromkeys(row.warm_start or [], row.id))
    for intent in session.scalars(select(IntentRow).where(IntentRow.status.in_(UNSETTLED))):
        named = intent.payload["spec"].get("warm_start")
        found.update(dict.fromkeys(named if isinstance(named, list) else [], intent.sweep))
    return found


def trial_checkpoints(session: Session, going: Container[tuple[str, int]]) -> Iterator[str]:
    """The digests of the checkpoints of each trial's highest rung and of its last one, of all trials that
    keep any.

    Args:
        going: trials ``(sweep, number)`` that are to keep none.
    """
    columns = (
        RungResultRow.sweep,
        RungResultRow.trial,
        RungResultRow.checkpoint,
        RungResultRow.best_checkpoint,
    )
    kept = TrialRow.checkpoints_left.is_distinct_from(NONE)
    query = select(*columns).join(
        TrialRow, (TrialRow.sweep == RungResultRow.sweep) & (TrialRow.number == RungResultRow.trial)
    )
    query = query.where(RungResultRow.checkpoint.is_not(None), kept).order_by(
        *columns[:2], RungResultRow.rung
    )
    last: Any = None
    for row in session.execute(query.execution_options(yield_per=_ROWS)):
        if last is not None and row[:2] != last[:2]:
            yield from _kept(last, going)
        last = row
    if last is not None:
        yield from _kept(last, going)
    newest = select(TrialRow.sweep, TrialRow.number, TrialRow.checkpoint).where(
        TrialRow.checkpoint.is_not(None), kept
    )
    for trial in session.execute(newest.execution_options(yield_per=_ROWS)):
        yield from _kept(trial, going)


def _kept(row: Any, going: Container[tuple[str, int]]) -> Iterator[str]:
    """The digests in a row that begins with a trial's sweep and number."""
    if (row[0], row[1]) not in going:
        yield from (digest for digest in row[2:] if digest)


def _searched(session: Session) -> dict[Run, Reason]:
    unfinished = (
        select(SweepRow, TrialRow.number)
        .join(TrialRow, TrialRow.sweep == SweepRow.id)
        .where(SweepRow.status.in_(OPEN))
    )
    return {
        (project_of(sweep), trial_key(sweep.id, number)): Reason(
            "its sweep is not over", f"its sweep is {sweep.status}"
        )
        for sweep, number in session.execute(unfinished)
    }


def _of_versions(versions: list[ModelVersionRow]) -> dict[Run, Reason]:
    used = [row for row in versions if row.project and row.run and row.stage != "archived"]
    return {
        (row.project or "", row.run or ""): Reason(
            f"a {row.stage} version", f"it is {row.stage} {row.version} of the model {row.model}"
        )
        for row in used
    }


def reported_by(store: Store, report: ReportRow, project: str) -> dict[Run, Reason]:
    """The runs that the report of a sweep in a project tells of: its winner, and the final trainings.

    Raises:
        NotFound: the report's content is gone from the store, so what it reaches is unknown.
    """
    data = json.loads(store.get_blob(report.digest))
    final = data.get("final") or {"seeds": []}
    runs = [data["winner"]["key"], *(seed["key"] for seed in final["seeds"])]
    if "winner" in final:
        runs.append(final["winner"])  # whose params were trained again
    reason = Reason("a report", f"the report of {report.sweep} tells of it")
    return {(project, run): reason for run in runs}


def _reported(session: Session, store: Store) -> dict[Run, Reason]:
    rows = session.execute(select(SweepRow, ReportRow).join(ReportRow, ReportRow.sweep == SweepRow.id))
    return {
        run: why
        for sweep, report in rows
        for run, why in reported_by(store, report, project_of(sweep)).items()
    }


def _reports(session: Session, store: Store) -> set[str]:
    """Reports, also those by which somebody once decided, with their pages, figures and code, and what each
    row was predicted to be.
    """
    pages = set(session.scalars(select(ReportRow.html)))
    reports = {
        *session.scalars(select(ReportRow.digest)),
        *(digest for digest in session.scalars(select(ModelVersionRow.report)) if digest),
    }
    decided = {digest for digest in session.scalars(select(RegistryEventRow.report).distinct()) if digest}
    kept = pages | reports | decided
    for digest in reports | decided:
        try:
            data = json.loads(store.get_blob(digest))
        except NotFound:
            if digest in reports:
                raise
            continue  # an event outlives what it names: a retention before this one may have taken it
        champion = data.get("champion") or {}
        figures = data.get("figures") or []
        winners = [data.get("winner") or {}, *(data.get("final") or {}).get("seeds", [])]
        named = (
            data.get("predictions"),
            data.get("code"),
            champion.get("predictions"),
            *(figure["digest"] for figure in figures),
        )
        kept.update(digest for winner in winners if (digest := winner.get("checkpoint")))
        kept.update(digest for digest in named if digest)
    return kept
