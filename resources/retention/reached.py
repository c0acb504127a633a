"""Why a run cannot be deleted: the version, report or sweep that needs it, by the rules of retention."""

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from halving.store.store import Store
from resources.catalog import ModelVersionRow, ReportRow, SweepRow, TrialRow
from resources.catalog.trial_key import trial_key
from resources.retention.protection import going_on_from, reported_by
from resources.scheduling.sweeps import OPEN

# An archived version may become champion again. A sweep's version has its checkpoint, which stays; the files
# of a client's version are the artifacts of its run.
_NEEDS_RUN = or_(ModelVersionRow.stage != "archived", ModelVersionRow.checkpoint.is_(None))


def reached_by(session: Session, store: Store, project: str, run: str) -> str | None:
    """Why a run is needed, as the end of a sentence that begins with its name; None where it is not.

    It looks at this run alone: the sweep in its id, versions of it, and trainings that go on from it.
    :func:`resources.retention.protection.find_protected` finds all.

    Raises:
        NotFound: a report's content is gone from the store, so what it reaches is unknown.
    """
    version = session.scalar(
        select(ModelVersionRow)
        .where(ModelVersionRow.project == project, ModelVersionRow.run == run, _NEEDS_RUN)
        .order_by(ModelVersionRow.stage == "archived")
        .limit(1)
    )
    if version is not None:
        return (
            f"is what model {version.model} {version.version} was made of, which is {version.stage}: "
            f"{_free(version)}"
        )
    sweep = _sweep_of(session, run)
    if sweep is not None:
        if sweep.status in OPEN:
            return (
                f"is a trial of the sweep {sweep.id}, which is {sweep.status}: wait for its end, or stop it"
            )
        report = session.get(ReportRow, sweep.id)
        if report is not None and (project, run) in reported_by(store, report, project):
            return f"is named by the report of the sweep {report.sweep}, which is kept"
    if (project, run) in going_on_from(session):
        return "is what a training run that is open goes on from: wait for its end, or stop it"
    return None


def needed_runs(session: Session, project: str) -> str | None:
    """Why the runs of a project cannot all be deleted, as the end of a sentence; None where they can."""
    query = select(ModelVersionRow).where(
        ModelVersionRow.project == project, ModelVersionRow.run.is_not(None), _NEEDS_RUN
    )
    version = session.scalar(query.order_by(ModelVersionRow.stage == "archived").limit(1))
    if version is None:
        return None
    return (
        f"its run {version.run} is what model {version.model} {version.version} was made of, which is "
        f"{version.stage}: {_free(version)}"
    )


def _free(version: ModelVersionRow) -> str:
    """What a person can do so that a version does not need its run any more."""
    if version.checkpoint is None:
        return "its files are the run's, so delete the version first"
    return "archive the version first"


def _sweep_of(session: Session, run: str) -> SweepRow | None:
    """The sweep that a run is a trial of, by the run's id."""
    sweep, _, number = run.rpartition(".")
    if not number.isdecimal() or len(number) > 9:
        return None
    if trial_key(sweep, int(number)) != run or session.get(TrialRow, (sweep, int(number))) is None:
        return None
    return session.get(SweepRow, sweep)
