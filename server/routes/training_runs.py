"""Training runs that are started by themselves.

They are looked at, canceled, and continued from a checkpoint.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound, StoreError
from halving.identifiers import check_name
from resources.analysis.training_run import training_run
from resources.datasets.over_http import check_over_http
from resources.datasets.snapshot_catalog import find_snapshot, refuse_deprecated
from resources.execution.concurrency import concurrency_of
from resources.scheduling import intents
from resources.scheduling.gpu_hours import check_gpu_hours
from resources.scheduling.training_runs import cancel, first_run, spec_of, spec_of_restored
from resources.source_files.places import listed_places
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.base import NO_FLAG, NoFlags
from resources.sweep_spec.sweep import Objective
from server.access.idempotency import Idempotent
from server.answers import answer
from server.errors import reasons_without_root, store_fault
from server.identity.caller import Caller, Viewer
from server.routes.datasets import visible_snapshots
from server.state import Shared, State
from server.store_threads import reads_store, reads_store_and_writes

router = APIRouter(prefix="/training-runs", tags=["training runs"])

Project = Annotated[str, Path(description="The run's project.", examples=["digits"])]
RunId = Annotated[str, Path(description="The run's id.", examples=["digits-7f3a5c7d.0000"])]


class NewRun(NoFlags):
    """A training to be started."""

    model_config = ConfigDict(extra="forbid")

    project: str = Field(description="The run's project.", examples=["digits"])
    trainable: str = Field(
        description="module:function, called as train(run).", examples=["examples.digits:train"]
    )
    image: str | None = Field(
        default=None, description="Cluster: image to train in, with the trainable and the SDK in it."
    )
    predictor: str | None = Field(
        default=None,
        description=(
            "module:function; with one the result is evaluated at the end, and promoted if it passes its "
            "gates."
        ),
    )
    dataset: str = Field(
        description="A snapshot: name@digest, or its digest.", examples=["digits@0123456789abcdef"]
    )
    objective: Objective = Field(
        description="The metric that the trainable reports in every epoch.",
        examples=[{"metric": "val_loss", "direction": "minimize"}],
    )
    params: dict[str, Any] = Field(
        description="The hyperparameters by name: texts, numbers, true, false, null, lists or mappings.",
        examples=[{"lr": 0.01}],
    )
    epochs: int = Field(ge=1, description="Epochs to train.", examples=[10])
    resources: dict[str, Any] = Field(
        default={},
        description="What it needs, as `resources` in a sweep's spec.",
        examples=[{"cpus": 2, "memory": "4Gi"}],
    )
    elastic: dict[str, Any] | None = Field(
        default=None,
        description="With how few nodes it may go on, as `elastic` in a sweep's spec.",
        examples=[{"min_nodes": 1}],
    )
    seed: int = Field(default=0, ge=0, description="The run's seed follows from it.")
    max_retries: int = Field(
        default=2, ge=0, description="How many times a crashed training is resumed from its checkpoint."
    )


class Started(BaseModel):
    """A training run that was asked for."""

    run_id: str = Field(description="PROJECT/RUN.", examples=["digits/digits-7f3a5c7d.0000"])
    project: str = Field(examples=["digits"])
    run: str = Field(examples=["digits-7f3a5c7d.0000"])
    intent: str = Field(examples=["0f3a5c7d9b1e2f40"])
    status: str = Field(examples=["waiting"])
    url: str = Field(examples=["/api/v1/training-runs/digits/digits-7f3a5c7d.0000"])
    intent_url: str = Field(examples=["/api/v1/hpo/studies/intents/0f3a5c7d9b1e2f40"])


@router.post("", status_code=202, response_model=Started)
def start(body: NewRun, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """Train once with given hyperparameters on an existing snapshot.

    It is recorded at once, also while Dagster is down.
    """
    caller.check(body.project)
    if stored := run_once.find_stored():
        return stored
    fields = body.model_dump(exclude={"dataset", "objective"})
    objective = body.objective.model_dump(exclude_none=True)
    with state.catalog.read() as session:
        among = visible_snapshots(session, caller)
    snapshot = find_snapshot(state.catalog, body.dataset, among)
    refuse_deprecated(snapshot, "dataset")
    return _start(spec_of(snapshot, objective=objective, **fields), state, caller, run_once)


@router.get("/{project}/{run}", response_model=dict[str, Any])
@reads_store
def look(project: Project, run: RunId, state: Shared, caller: Viewer) -> Response:
    """Where a training run stands.

    ``status`` (waiting, running, paused, finished, stopped, failed, canceling, canceled), ``waiting`` (why it
    does not train now), ``error`` and, in one line, its ``reason``, ``params``, ``epochs``, ``epoch``,
    ``seconds``, ``attempts`` (each with ``attempt``, its number, ``began``, ``ended``, its ``worker``,
    ``nodes``, ``gpus`` and ``ranks``, its ``outcome``, ``error`` and ``reason``), ``checkpoints`` (or why
    they are ``unavailable``), ``skips`` (steps and checkpoints that were left out, by attempt),
    ``time_spent`` (percent ``computing``, ``data_wait``, ``collectives``, ``saves``, ``gpu``; its
    ``straggler``; a ``warning``), ``restored_from``, ``sweep``, ``snapshot``, ``on_its_own`` (whether it can
    be canceled: a larger sweep decides about its trials).
    """
    caller.check(project)
    try:
        status = training_run(state.catalog, state.store, project, run, state.system_points).as_dict()
    except NotFound as unknown:
        if _is_recorded(state, project, run):
            raise NotFound(
                f"{unknown}: a script recorded it, and what there is of it is at /api/v1/runs/{project}/{run}"
            ) from None
        raise
    unavailable = status["unavailable"] and store_fault(status["unavailable"])
    return answer({**reasons_without_root(status, state.store.root), "unavailable": unavailable})


@router.post("/{project}/{run}/cancel", response_model=dict[str, Any])
def end(project: Project, run: RunId, state: Shared, caller: Viewer, run_once: Idempotent) -> Response:
    """End a training run; it saves a checkpoint. A run that is over stays as it is."""
    caller.check(project)

    def write(session: Session) -> tuple[int, Any]:
        cancel(state.catalog, project, run, caller.actor, session)
        return 200, {"run_id": f"{project}/{run}", "url": _url(project, run)}

    return run_once(write)


@router.post("/{project}/{run}/checkpoints/{epoch}/restore", status_code=202, response_model=Started)
@reads_store_and_writes
def restore(
    project: Project,
    run: RunId,
    epoch: Annotated[int, Path(ge=1, description="The checkpoint's epoch.", examples=[5])],
    state: Shared,
    caller: Viewer,
    run_once: Idempotent,
    epochs: Annotated[
        Annotated[int, NO_FLAG, Field(ge=1)] | None,
        Body(embed=True, description="Epochs to train in all (default: as many as the run)."),
    ] = None,
) -> Response:
    """Start a new run that goes on from a checkpoint, with the same hyperparameters on the same data."""
    caller.check(project)
    if stored := run_once.find_stored():
        return stored
    return _start(
        spec_of_restored(state.catalog, state.store, project, run, epoch, epochs), state, caller, run_once
    )


def _start(spec: SweepSpec, state: State, caller: Caller, run_once: Idempotent) -> Response:
    check_over_http(spec, listed_places())
    concurrency_of(spec)
    check_gpu_hours(state.catalog, spec)

    def write(session: Session) -> tuple[int, Any]:
        row = intents.add(session, spec, kind="training-run", driver="sensors", actor=caller.actor)
        run = first_run(row.sweep)
        return 202, {
            "run_id": f"{spec.project}/{run}",
            "project": spec.project,
            "run": run,
            "intent": row.id,
            "status": row.status,
            "url": _url(spec.project, run),
            "intent_url": f"/api/v1/hpo/studies/intents/{row.id}",
        }

    return run_once(write)


def _is_recorded(state: State, project: str, run: str) -> bool:
    """Whether the store has a run's record.

    False as well for a name that no run can have, and while the store does not answer.
    """
    try:
        folder = f"runs/project={check_name('project', project)}/{check_name('run id', run)}"
        return state.store.exists(f"{folder}/record.json")
    except (InvalidInput, StoreError):
        return False


def _url(project: str, run: str) -> str:
    return f"/api/v1/training-runs/{project}/{run}"
