"""Studies that are asked for: a sweep's spec becomes an intent, which Dagster carries out."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from resources.catalog import IntentRow, utcnow
from resources.datasets.no_data import NO_DATA, names_no_data
from resources.datasets.over_http import check_over_http
from resources.datasets.snapshot_catalog import dataset_of, find_snapshot, refuse_deprecated
from resources.datasets.snapshots import find_or_take_snapshot
from resources.execution.concurrency import concurrency_of
from resources.execution.external_loops import check_study
from resources.scheduling import intents
from resources.scheduling.gpu_hours import check_gpu_hours
from resources.scheduling.sweeps import open_sweep
from resources.scheduling.warm_start import warm_start_sources
from resources.source_files.places import listed_places
from resources.sweep_spec import SweepSpec, parse_spec
from server.access.idempotency import Idempotent
from server.answers import answer
from server.errors import without_root
from server.identity.caller import Caller, Viewer
from server.routes.datasets import visible_snapshots
from server.state import Shared, State

router = APIRouter(prefix="/hpo/studies", tags=["sweeps"])

_EXAMPLE = {
    "name": "digits",
    "trainable": "examples.digits:train",
    "predictor": "examples.digits:predict",
    "dataset": {"name": "digits", "source": "examples.digits:load", "target": "label"},
    "objective": {"metric": "val_accuracy", "direction": "maximize"},
    "space": {"lr": {"float": {"low": 1e-4, "high": 0.1, "log": True}}},
    "strategy": {"asha": {"max_budget": 27}},
    "max_trials": 27,
}
DriverName = Annotated[
    intents.Driver,
    Query(
        description=(
            "Who runs its trials: Dagster's `sensors`, or external loops, which ask the `api` for them."
        )
    ),
]


class IntentStatus(BaseModel):
    """What was asked for, and what has become of it."""

    intent: str = Field(description="The intent's id.", examples=["0f3a5c7d9b1e2f40"])
    kind: str = Field(description="study or training-run.", examples=["study"])
    status: str = Field(description="waiting, launched, done, failed or canceled.", examples=["waiting"])
    waiting: str | None = Field(description="Why it is not done yet.")
    error: str | None = Field(description="Why it failed.")
    study: str = Field(description="The sweep that it becomes, or has become.", examples=["digits-7f3a5c7d"])
    dagster_run: str | None = Field(description="Dagster's run that does it.")
    actor: str = Field(description="Who asked.", examples=["local"])
    created_at: datetime
    url: str = Field(
        description="Where to ask for this again.", examples=["/api/v1/hpo/studies/intents/0f3a5c7d9b1e2f40"]
    )
    study_url: str = Field(examples=["/api/v1/hpo/studies/digits-7f3a5c7d"])


@router.post("", status_code=202, response_model=IntentStatus)
def launch(
    spec: Annotated[
        dict[str, Any], Body(description="A sweep's spec, as in `sweeps/*.yaml`.", examples=[_EXAMPLE])
    ],
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    driver: DriverName = "sensors",
) -> Response:
    """Launch a sweep. It is recorded at once, also while Dagster is down, which opens it.

    A spec with a `snapshot` needs no `dataset`, and with `driver=api` it needs no `trainable`. With that
    driver, no `predictor`, and a `snapshot` or no `dataset` (loops that read their own data) nothing is left
    for Dagster to do, and the study is open at once.
    """
    # Its runs go to its project, and its winner to the model of its name. What is no name is refused below.
    for name in (spec.get("name"), spec.get("project")):
        if isinstance(name, str):
            caller.check(name)
    if stored := run_once.find_stored():
        return stored
    completed = _with_dataset(state, caller, spec)
    reads_own_data = driver == "api" and names_no_data(completed)
    if reads_own_data:
        completed = {**completed, "dataset": NO_DATA}
    checked = parse_spec(completed, trains=driver != "api")
    check_over_http(checked, listed_places(), trains=driver != "api")
    if checked.restored_from is not None:
        caller.check(checked.restored_from.project)
    if checked.snapshot is not None:
        with state.catalog.read() as session:
            among = visible_snapshots(session, caller)
        refuse_deprecated(find_snapshot(state.catalog, checked.snapshot, among), "snapshot")
    if driver == "sensors":
        concurrency_of(checked)
    else:
        check_study(checked)
    check_gpu_hours(state.catalog, checked)
    is_taken = checked.snapshot is not None or reads_own_data
    here = driver == "api" and is_taken and checked.judged_by is None
    # Before the transaction, too: within it a second connection would be waited for while this one is held.
    snapshot = ""
    if here:
        snapshot = find_or_take_snapshot(state.store, state.catalog, checked).digest
    sources = []
    if here:
        sources = warm_start_sources(state.catalog, checked, caller.projects)

    def write(session: Session) -> tuple[int, Any]:
        row = intents.add(
            session, checked, kind="study", driver=driver, actor=caller.actor, projects=caller.projects
        )
        if here:
            _open_here(state, session, row, checked, snapshot, sources)
        return 202, intent_answer(row, state.store.root)

    return run_once(write)


@router.get("/intents/{intent}", response_model=IntentStatus)
def one_intent(
    intent: Annotated[
        str, Path(description="The intent's id.", pattern="^[A-Za-z0-9]+$", examples=["0f3a5c7d9b1e2f40"])
    ],
    state: Shared,
    caller: Viewer,
) -> Response:
    """What has become of a request for a sweep or a training run."""
    return answer(intent_answer(_intent_of(state, caller, intent), state.store.root))


def intent_answer(row: IntentRow, root: str) -> dict[str, Any]:
    """An intent as an answer, without the store's address."""
    return {
        "intent": row.id,
        "kind": row.kind,
        "status": row.status,
        "waiting": intents.waits_for(row, utcnow()),
        "error": row.error and without_root(row.error, root),
        "study": row.sweep,
        "dagster_run": row.run,
        "actor": row.actor,
        "created_at": row.created_at,
        "url": f"/api/v1/hpo/studies/intents/{row.id}",
        "study_url": f"/api/v1/hpo/studies/{row.sweep}",
    }


def _with_dataset(state: State, caller: Caller, spec: dict[str, Any]) -> dict[str, Any]:
    """The spec, completed with the dataset of the snapshot that it names."""
    if "dataset" in spec or not isinstance(spec.get("snapshot"), str):
        return spec
    with state.catalog.read() as session:
        among = visible_snapshots(session, caller)
    snapshot = find_snapshot(state.catalog, spec["snapshot"], among)
    return {**spec, "dataset": dataset_of(snapshot), "snapshot": snapshot.digest}


def _intent_of(state: State, caller: Caller, intent: str) -> IntentRow:
    if caller.projects is None:
        return intents.find(state.catalog, intent)
    with state.catalog.read() as session:
        row = session.get(IntentRow, intent)
    project = None
    if row is not None:
        project = intents.project_of(row)
    caller.check(project, f"intent {intent!r}")
    assert row is not None
    return row


def _open_here(
    state: State, session: Session, row: IntentRow, spec: SweepSpec, snapshot: str, sources: list[str]
) -> None:
    """Open a study that needs nothing of Dagster, in the transaction that records it."""
    open_sweep(
        state.catalog,
        spec,
        snapshot,
        driver="api",
        commit=None,
        sweep=row.sweep,
        sources=sources,
        within=session,
    )
    row.status = intents.DONE
