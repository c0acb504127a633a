"""Sweeps: which there are, one with its trials and why each waits, and its controls."""

from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import NotFound
from resources.analysis.costs.prices import load_prices
from resources.analysis.costs.questions import sweep_cost
from resources.analysis.summary import summarize
from resources.analysis.sweep_list import list_sweeps
from resources.analysis.timeline import timeline_of
from resources.analysis.trial_list import trials_of
from resources.catalog import IntentRow, SweepRow, TrialRow
from resources.registry.leaderboard import outcome_of, report_data
from resources.registry.versions import as_dict
from resources.scheduling import intents
from resources.scheduling.sweeps import MAX_TRIALS, extend_sweep, pause_sweep, resume_sweep
from resources.search.state import Control, Status
from resources.sweep_spec.base import NO_FLAG
from server.access.idempotency import Idempotent
from server.answers import IfNoneMatch, Number, answer, is_known
from server.errors import reasons_without_root
from server.identity.caller import Caller, Viewer
from server.routes.studies import intent_answer
from server.state import Shared, State

router = APIRouter(prefix="/hpo/studies", tags=["sweeps"])

StudyId = Annotated[str, Path(description="The sweep's id.", examples=["digits-7f3a"])]
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Nothing has changed since the answer that If-None-Match names."}
}


class Study(BaseModel):
    """A sweep in one line."""

    id: str = Field(examples=["digits-7f3a"])
    name: str = Field(description="That of its spec, which is also its model.", examples=["digits"])
    project: str = Field(
        description="Whose share it uses; its runs are of this project.", examples=["digits"]
    )
    priority: int = Field(
        description="Among the sweeps of its project those with a higher one come first.", examples=[0]
    )
    status: str = Field(
        description="searching, evaluating, finished, rejected (a gate failed), held (a gate had too little "
        "evidence) or failed; of one that is not open waiting, launched, failed or canceled.",
        examples=["searching"],
    )
    control: str = Field(description="What its user has asked for: run, pause or stop.", examples=["run"])
    created_at: datetime
    finished_at: datetime | None
    objective: str | None = Field(examples=["val_accuracy"])
    direction: str | None = Field(examples=["maximize"])
    best: Number | None = Field(description="The objective of the leading trial.", examples=[0.973])
    trials: int | None = Field(description="How many it may start.", examples=[27])
    counts: dict[str, int] = Field(
        description="How many trials are in each status.", examples=[{"completed": 3, "paused": 24}]
    )
    problem: str | None = Field(
        description="Why its spec cannot be read; objective, direction, best and trials are null then."
    )
    waiting: str | None = Field(
        description=(
            "Why it is not open yet, or never was; of an open one why none of its trials is started: a "
            "quota, or others' shares."
        )
    )


class Studies(BaseModel):
    """The newest sweeps first."""

    studies: list[Study]


class ControlledStudy(BaseModel):
    """A sweep after a control."""

    sweep: str = Field(examples=["digits-7f3a"])
    status: str = Field(examples=["searching"])
    control: str = Field(examples=["pause"])
    max_trials: int | None = Field(
        description="What it was extended to; null: as its spec says.", examples=[None]
    )


@router.get("", response_model=Studies)
def list_studies(
    state: Shared,
    caller: Viewer,
    project: Annotated[
        str | None, Query(description="Only sweeps of this project.", examples=["digits"])
    ] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> Response:
    """The newest sweeps first, those that are not open yet among them."""
    names = caller.visible_projects
    if project is not None:
        names = [project]
    return answer(
        {"studies": [line.as_dict() for line in list_sweeps(state.catalog, projects=names, limit=limit)]}
    )


@router.get("/{study}", response_model=dict[str, Any], responses=NOT_MODIFIED)
def one_study(study: StudyId, state: Shared, caller: Viewer, if_none_match: IfNoneMatch = None) -> Response:
    """A sweep with its trials.

    The fields of ``halving leaderboard --json`` (``standings``, ``rungs``, ``failed``, ``waiting``,
    ``epochs_trained``…), and ``id``, ``name``, ``project``, ``priority``, ``created_at``, ``finished_at``,
    ``snapshot``, ``commit``, ``driver``, ``spec``; ``trials``, each with ``number``, ``key``, ``status``,
    ``params``, ``waiting`` (why it does not train now), ``objective``, ``metrics``, ``epochs``, ``rung``,
    ``seconds``, ``attempts``, ``error``, and ``final``, the number of its seed if it is of the final
    training, else null; ``final``, the trials of the final training, ``final_seeds``, how many there are to
    be, and ``final_scores``, what the report says of them: ``seeds`` with their ``metrics``, ``mean``,
    ``std``, ``promotable`` (the median's key), ``missing``; null before there is one; ``report``, the scores
    on the test split and when it was made, or null; ``model``, the version of its winner, or null; ``cost``:
    ``cost`` in ``currency`` by the prices of ``prices_of``, ``gpu_hours``, ``saved``, ``lost``,
    ``evaluation``, ``purposes``, and all of it as ``text``; ``timeline``: its ``attempts`` and
    ``milestones``; ``problem``, why external loops that ask this server get no trial (the sampler fails), or
    null; ``intent``: null.

    One that is not open yet, or never will be, has ``id``, ``name``, ``project``, ``status`` (waiting,
    launched, failed, canceled), ``created_at``, ``driver``, ``spec`` and ``intent``: what has become of the
    request for it, and why it waits.

    Asked again with ``If-None-Match`` it answers 304 as long as nothing of it has changed.
    """
    row = _study_of(state, caller, study)
    if isinstance(row, IntentRow):
        return answer(_unopened_answer(state, row))
    tag = _tag(state, row)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if is_known(tag, if_none_match):
        return Response(status_code=304, headers=headers)
    summary = summarize(state.catalog, study)
    report, version = outcome_of(state.catalog, study)
    with state.catalog.read() as session:
        model = None
        if version is not None:
            model = as_dict(session, version)
    scores = None
    if report is not None:
        scores = {"metrics": report.metrics, "created_at": report.created_at, "digest": report.digest}
    final_scores = None
    if summary.final_seeds:
        final_scores = report_data(state.store, report).get("final")
    copied = (
        "id",
        "name",
        "project",
        "priority",
        "created_at",
        "finished_at",
        "snapshot",
        "commit",
        "driver",
        "spec",
    )
    body = {
        **summary.as_dict(),
        **{name: getattr(row, name) for name in copied},
        "saved": summary.saved,
        "cost": sweep_cost(state.catalog, study, load_prices()).as_dict(),
        "problem": state.studies.problem(study),
        "final_scores": final_scores,
        "trials": [line.as_dict() for line in trials_of(state.catalog, study)],
        "report": scores,
        "model": model,
        "timeline": asdict(timeline_of(state.catalog, study)),
        "intent": None,
    }
    for name in ("trials", "failed", "final"):  # a large sweep has many trials, and few of them failed
        body[name] = [_without_root(line, state.store.root) for line in body[name]]
    return answer(body, headers=headers)


@router.post("/{study}/pause", response_model=ControlledStudy)
def pause(study: StudyId, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Hand out no more trials; running ones save a checkpoint and free their workers within seconds."""
    _open_study(state, caller, study)
    return run_once(
        lambda session: _control_answer(pause_sweep(state.catalog, study, session, actor=caller.actor))
    )


@router.post("/{study}/resume", response_model=ControlledStudy)
def resume(study: StudyId, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Let a paused sweep go on, or revoke a stop while its last trials are still being ended."""
    _open_study(state, caller, study)
    return run_once(
        lambda session: _control_answer(resume_sweep(state.catalog, study, session, actor=caller.actor))
    )


@router.post("/{study}/stop", response_model=ControlledStudy)
def stop(study: StudyId, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """End the search now; the best trial so far is evaluated as usual.

    A study that is not open yet is canceled, and never opened.
    """
    row = _study_of(state, caller, study)

    def write(session: Session) -> tuple[int, dict[str, Any]]:
        stopped = intents.stop_sweep(state.catalog, study, caller.actor, session)
        if isinstance(stopped, SweepRow):
            return _control_answer(stopped)
        return 200, {"sweep": study, "status": stopped.status, "control": Control.STOP, "max_trials": None}

    answered = run_once(write)
    if isinstance(row, SweepRow) and row.driver == "api":
        state.studies.of(study).settle()  # its loops may never ask again
    return answered


@router.post("/{study}/extend", response_model=ControlledStudy)
def extend(
    study: StudyId,
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    max_trials: Annotated[
        int,
        NO_FLAG,
        Body(
            embed=True,
            ge=1,
            le=MAX_TRIALS,
            description="How many trials it may start in all.",
            examples=[100],
        ),
    ],
) -> Response:
    """Let a sweep start more trials."""
    _open_study(state, caller, study)
    return run_once(
        lambda session: _control_answer(
            extend_sweep(state.catalog, study, max_trials, session, actor=caller.actor)
        )
    )


def sweep_of(state: State, caller: Caller, study: str) -> SweepRow:
    """A sweep's row, if the caller may see it.

    Raises:
        NotFound: there is no such sweep, or it is of another project than the caller's.
    """
    with state.catalog.read() as session:
        row = session.get(SweepRow, study)
        if row is None and caller.projects is None:
            return state.catalog.sweep(session, study)  # raises, and names the newest ones
    project = None
    if row is not None:
        project = row.project
    caller.check(project, f"sweep {study!r}")
    assert row is not None
    return row


def _study_of(state: State, caller: Caller, study: str) -> SweepRow | IntentRow:
    """A sweep's row, or the intent that is to become the sweep."""
    try:
        return sweep_of(state, caller, study)
    except NotFound:
        intent = intents.of_sweep(state.catalog, study)
        if intent is None or not caller.sees(intents.project_of(intent)):
            raise
        # It may have been opened between the two queries.
        if intent.status != intents.DONE:
            return intent
        return sweep_of(state, caller, study)


def _open_study(state: State, caller: Caller, study: str) -> None:
    row = _study_of(state, caller, study)
    if isinstance(row, IntentRow):
        raise intents.NotOpen(intents.why_not_open(row))


def check_opens(state: State, caller: Caller, study: str) -> None:
    """Check that a study is open, or will be.

    Raises:
        NotFound: there is no such study, or it is of another project than the caller's.
        intents.NotOpen: it was never opened, and never will be.
    """
    row = _study_of(state, caller, study)
    if isinstance(row, IntentRow) and row.status not in intents.OPEN:
        raise intents.NotOpen(intents.why_not_open(row))


def _unopened_answer(state: State, intent: IntentRow) -> dict[str, Any]:
    return {
        "id": intent.sweep,
        "name": intent.payload["spec"]["name"],
        "project": intents.project_of(intent),
        "status": intent.status,
        "created_at": intent.created_at,
        "driver": intent.payload["driver"],
        "spec": intent.payload["spec"],
        "intent": intent_answer(intent, state.store.root),
    }


def _tag(state: State, row: SweepRow) -> str:
    """The ETag of a sweep: while it stays the same, so does everything that is shown.

    Decisions are counted by the sweep's revision; everything else that changes is a part of the tag.
    """
    running = select(TrialRow.number, TrialRow.worker, TrialRow.waiting, TrialRow.doubted_until)
    with state.catalog.read() as session:
        trials = session.execute(
            running.where(TrialRow.sweep == row.id, TrialRow.status == Status.RUNNING).order_by(
                TrialRow.number
            )
        ).all()
    report, version = outcome_of(state.catalog, row.id)
    controls = (
        row.status,
        row.control,
        row.priority,
        row.held_back,
        row.max_trials,
        state.studies.problem(row.id),
    )
    counted = (row.revision, *controls, report and report.created_at, version and version.stage)
    return f'"{sha256(repr((counted, [tuple(trial) for trial in trials])).encode()).hexdigest()[:24]}"'


def _without_root(line: dict[str, Any], root: str) -> dict[str, Any]:
    if not line.get("error"):
        return line
    hidden: dict[str, Any] = reasons_without_root(line, root)
    return hidden


def _control_answer(row: SweepRow) -> tuple[int, dict[str, Any]]:
    return 200, {"sweep": row.id, "status": row.status, "control": row.control, "max_trials": row.max_trials}
