"""Finds what retention must not touch: runs of champions and reports, and blobs that the catalog names."""

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
_ROWS_AT_ONCE = 10_000
NONE = "none"
"""``TrialRow.checkpoints_left`` where retention has left none."""


class Reason(NamedTuple):
    """Why a run is protected: the kind of reason, for counting, and the reason as a sentence."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class Protected:
    """The runs and blobs that retention leaves as they are.

    Attributes:
        runs: runs that keep all points, media and artifacts, and why.
        sources: those of them that keep all checkpoints as well, because a training goes on from them or
            their sweep is open.
        blobs: digests of versions and reports, and of what these are made of; they stay even where their
            runs are not protected.
        registered: runs of any version, even an archived one; their artifacts stay.
    """

    runs: Mapping[Run, Reason]
    sources: frozenset[Run]
    blobs: frozenset[str]
    registered: frozenset[Run]


def find_protected(store: Store, catalog: Catalog) -> Protected:
    """Find what the registry, the reports and unfinished sweeps need.

    Protected runs are those of champions and staging versions, of every report's winner, and of sweeps that
    are not finished. Protected blobs are every report, also one that only an event of the registry names, and
    the manifest and checkpoint of every version, because an archived one may become champion again. Which
    checkpoints of trials are kept is decided by :mod:`resources.retention.ended_trials`.

    Raises:
        InvalidInput: the store has something of sweeps or versions that the catalog lacks, so what these
            reach is unknown.
        NotFound: a report's content is gone from the store.
    """
    check_is_own(store, catalog)
    with catalog.read() as session:
        searched = _runs_of_open_sweeps(session)
        sources = going_on_from(session)
        versions = list(session.scalars(select(ModelVersionRow)))
        registered = frozenset((row.project, row.run) for row in versions if row.project and row.run)
        blobs = {digest for row in versions for digest in (row.checkpoint, row.manifest) if digest}
        runs = {**_runs_of_reports(session, store), **_of_versions(versions), **sources, **searched}
        return Protected(
            runs, frozenset({*searched, *sources}), frozenset(blobs | _reports(session, store)), registered
        )


def project_of(sweep: SweepRow) -> str:
    """The project in which a sweep's trials are runs."""
    return sweep.project


def in_project(project: str) -> ColumnElement[bool]:
    """The SQL condition that a sweep is of a project."""
    return SweepRow.project == project


def going_on_from(session: Session) -> dict[Run, Reason]:
    """The runs from whose checkpoints unfinished training runs go on.

    A training that has begun needs the checkpoint as well, because a retry goes back to it.
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
    """The sweeps that unfinished sweeps learn from, each with the unfinished one."""
    learners: dict[str, str] = {}
    for row in session.scalars(select(SweepRow).where(SweepRow.status.in_(OPEN))):
        learners.update(dict.fromkeys(row.warm_start or [], row.id))
    for intent in session.scalars(select(IntentRow).where(IntentRow.status.in_(UNSETTLED))):
        sources = intent.payload["spec"].get("warm_start")
        if isinstance(sources, list):
            learners.update(dict.fromkeys(sources, intent.sweep))
    return learners


def trial_checkpoints(session: Session, going: Container[tuple[str, int]]) -> Iterator[str]:
    """Digests of the checkpoints of the highest rung and of the newest one, of all trials that keep any.

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
    for row in session.execute(query.execution_options(yield_per=_ROWS_AT_ONCE)):
        if last is not None and row[:2] != last[:2]:
            yield from _digests_in(last, going)
        last = row
    if last is not None:
        yield from _digests_in(last, going)
    newest = select(TrialRow.sweep, TrialRow.number, TrialRow.checkpoint).where(
        TrialRow.checkpoint.is_not(None), kept
    )
    for trial in session.execute(newest.execution_options(yield_per=_ROWS_AT_ONCE)):
        yield from _digests_in(trial, going)


def _digests_in(row: Any, going: Container[tuple[str, int]]) -> Iterator[str]:
    """The digests in a row that begins with a trial's sweep and number; none of a trial in ``going``."""
    if (row[0], row[1]) not in going:
        yield from (digest for digest in row[2:] if digest)


def _runs_of_open_sweeps(session: Session) -> dict[Run, Reason]:
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
    """The runs that a sweep's report names: its winner, and the final trainings.

    Raises:
        NotFound: the report's content is gone from the store, so what it reaches is unknown.
    """
    data = json.loads(store.get_blob(report.digest))
    final = data.get("final") or {"seeds": []}
    runs = [data["winner"]["key"], *(seed["key"] for seed in final["seeds"])]
    if "winner" in final:
        runs.append(final["winner"])  # Its params were trained again.
    reason = Reason("a report", f"the report of {report.sweep} tells of it")
    return {(project, run): reason for run in runs}


def _runs_of_reports(session: Session, store: Store) -> dict[Run, Reason]:
    rows = session.execute(select(SweepRow, ReportRow).join(ReportRow, ReportRow.sweep == SweepRow.id))
    reasons: dict[Run, Reason] = {}
    for sweep, report in rows:
        reasons.update(reported_by(store, report, project_of(sweep)))
    return reasons


def _reports(session: Session, store: Store) -> set[str]:
    """Digests of all reports, with their pages, figures, code, predictions and checkpoints.

    Reports by which somebody decided in the registry are among them.
    """
    pages = set(session.scalars(select(ReportRow.html)))
    reports = {
        *session.scalars(select(ReportRow.digest)),
        *(digest for digest in session.scalars(select(ModelVersionRow.report)) if digest),
    }
    decided = {digest for digest in session.scalars(select(RegistryEventRow.report).distinct()) if digest}
    digests_to_keep = pages | reports | decided
    for digest in reports | decided:
        try:
            data = json.loads(store.get_blob(digest))
        except NotFound:
            if digest in reports:
                raise
            continue  # An event outlives its report, which an earlier retention may have deleted.
        champion = data.get("champion") or {}
        figures = data.get("figures") or []
        winners = [data.get("winner") or {}, *(data.get("final") or {}).get("seeds", [])]
        digests = (
            data.get("predictions"),
            data.get("code"),
            champion.get("predictions"),
            *(figure["digest"] for figure in figures),
        )
        digests_to_keep.update(digest for winner in winners if (digest := winner.get("checkpoint")))
        digests_to_keep.update(digest for digest in digests if digest)
    return digests_to_keep
