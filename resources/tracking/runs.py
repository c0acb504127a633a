"""Tracked runs: rows of the catalog whose changes are written to the store first.

Every change is one transaction that locks the run's row. It checks the stage and the params, writes the
files, then the row, and the client gets its answer after the commit. If the server is killed in between, it
leaves a file that no client knows of, and the next change skips it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import InvalidInput, NotFound
from halving.records import amendments
from halving.store.store import Store
from resources.catalog import ExperimentRow, TrackedRunRow
from resources.tracking import run_files
from resources.tracking.experiments import ACTIVE, DELETED, check_active, now_ms
from resources.tracking.run_files import TrackedPoint

NAME_TAG = "mlflow.runName"
OPEN = ("running", "scheduled")
_FREE = "mlflow-artifacts"
_STAGED_AT_ONCE = 20
STATUSES = (*OPEN, "finished", "failed", "terminated")


@dataclass(frozen=True)
class Tracked:
    """A run with its experiment.

    Attributes:
        locked: whether its row is locked until the transaction ends.
    """

    row: TrackedRunRow
    experiment: int
    project: str
    artifacts: str
    locked: bool = False


def create_run(
    session: Session,
    store: Store,
    experiment: ExperimentRow,
    run: str,
    *,
    name: str,
    user: str,
    started: int,
    tags: Mapping[str, str],
    of_model: bool = False,
) -> Tracked:
    """Begin a run.

    Args:
        of_model: whether it exists only for a model that was logged outside of a run.

    Raises:
        InvalidInput: the experiment is deleted.
    """
    check_active(experiment)
    row = _new(run, experiment.id, name, user, started, {**tags, NAME_TAG: name}, of_model=of_model)
    run_files.begin(store, experiment.project, run, experiment.id, started, _facts(row))
    session.add(row)
    session.flush()
    return Tracked(row, experiment.id, experiment.project, experiment.artifacts)


def find_run(session: Session, run: str, *, lock: bool = False) -> Tracked:
    """Find a run by its id, even a deleted one.

    Args:
        lock: whether to lock its row until the transaction ends.

    Raises:
        NotFound: there is none of this id.
    """
    query = select(TrackedRunRow).where(TrackedRunRow.id == run)
    if lock:
        query = query.with_for_update().execution_options(populate_existing=True)
    row = session.scalar(query)
    if row is None or run == _FREE:
        raise NotFound(f"Run with id={run} not found")
    experiment = session.get_one(ExperimentRow, row.experiment)
    return Tracked(row, experiment.id, experiment.project, experiment.artifacts, lock)


def free_run(session: Session, *, lock: bool = False) -> Tracked:
    """The run that owns artifacts without a run, in the default experiment.

    It has no record in the store, so it is never listed. It may be missing in the catalog; the caller adds
    its row to the session if it is needed there.
    """
    query = select(TrackedRunRow).where(TrackedRunRow.id == _FREE)
    if lock:
        query = query.with_for_update()
    row = session.scalar(query)
    experiment = session.get_one(ExperimentRow, 0)
    return Tracked(
        row or _new(_FREE, 0, _FREE, "", 0, {}, of_model=True),
        0,
        experiment.project,
        experiment.artifacts,
        lock,
    )


def _new(
    run: str, experiment: int, name: str, user: str, started: int, tags: Mapping[str, str], *, of_model: bool
) -> TrackedRunRow:
    return TrackedRunRow(
        id=run,
        experiment=experiment,
        name=name,
        user=user,
        status="running",
        stage=ACTIVE,
        started=started,
        attempt=1,
        metrics="[]",
        params="[]",
        tags=as_items(tags),
        inputs="[]",
        model_inputs="[]",
        outputs="[]",
        of_model=of_model,
    )


def log(
    store: Store,
    tracked: Tracked,
    *,
    points: Sequence[TrackedPoint] = (),
    params: Sequence[tuple[str, str]] = (),
    tags: Sequence[tuple[str, str]] = (),
    inputs: Sequence[dict[str, Any]] = (),
    model_inputs: Sequence[dict[str, Any]] = (),
    outputs: Sequence[dict[str, Any]] = (),
) -> int:
    """Add points, params, tags, inputs and outputs to a locked run.

    Returns:
        The number of its segments that are not compacted; 0 if there are no points.

    Raises:
        InvalidInput: the run is deleted, or a param has another value already.
    """
    row = tracked.row
    check_run_active(row)
    tags = [(key, value) for key, value in tags if value or key != NAME_TAG]  # a run keeps its name
    logged = of_items(row.params)
    new = _new_params(row.id, logged, params)
    changed = of_items(row.tags) | dict(tags)
    live = 0
    if points:
        live = run_files.add_points(store, tracked.project, row.id, row.attempt, points)
    amended = bool(new or inputs or model_inputs or outputs) or changed != of_items(row.tags)
    if points:
        row.metrics = _with_latest(row.metrics, points)
    if new:
        row.params = as_items(logged | new)
    if tags:
        row.tags = as_items(changed)
        row.name = changed.get(NAME_TAG, row.name)
    if inputs:
        row.inputs = _with_inputs(row.inputs, inputs)
    row.model_inputs = _with_models(row.model_inputs, model_inputs)
    row.outputs = _with_models(row.outputs, outputs)
    if amended:
        _amend(store, tracked)
    return live


def delete_tag(store: Store, tracked: Tracked, key: str) -> None:
    """Delete a tag of a locked run.

    Raises:
        InvalidInput: the run is deleted.
        NotFound: it has no such tag.
    """
    row = tracked.row
    check_run_active(row)
    tags = of_items(row.tags)
    if key not in tags:
        raise NotFound(f"No tag with name: {key} in run with id {row.id}")
    del tags[key]
    row.tags = as_items(tags)
    _amend(store, tracked)


def update(
    store: Store, tracked: Tracked, *, name: str | None, status: str | None, ended: int | None
) -> None:
    """Change the name or the status of a locked run.

    A run that has ended and runs again begins another attempt.

    Args:
        status: one of :data:`STATUSES`.
        ended: the end in ms since 1970; None for now, if the status says that the run has ended.

    Raises:
        InvalidInput: it is deleted.
    """
    row = tracked.row
    check_run_active(row)
    if status is not None:
        if status in OPEN:
            if row.ended is not None:
                run_files.begin_attempt(store, tracked.project, row.id, row.attempt + 1, now_ms())
                # A run that goes on is no longer archived.
                row.attempt = row.attempt + 1
                row.ended = None
                row.stage = ACTIVE
        else:
            if ended is None:
                ended = now_ms()
            if row.ended is None:
                row.ended = run_files.end_attempt(store, tracked.project, row.id, row.attempt, status, ended)
        row.status = status
        if ended is not None or status in OPEN:
            row.ended_at = ended
    elif ended is not None:
        row.ended_at = ended
    renamed = name is not None and name != row.name
    if renamed and name is not None:
        row.name = name
        row.tags = as_items(of_items(row.tags) | {NAME_TAG: name})
    if renamed or (row.ended is not None and row.ended != row.status):
        _amend(store, tracked)


def set_stage(store: Store, tracked: Tracked, stage: amendments.Lifecycle, by: str) -> None:
    """Delete, archive or restore a locked run; all its data stays."""
    row = tracked.row
    if row.stage != stage:
        row.stage = stage
        row.deleted_at = None
        if stage == DELETED:
            row.deleted_at = now_ms()
    run_files.amend(store, tracked.project, row.id, _facts(row), by)  # the store may be behind the row


def set_stage_of_some(
    session: Session, store: Store, experiment: ExperimentRow, stage: amendments.Lifecycle, by: str
) -> list[str]:
    """Delete or restore some of an experiment's runs; return their ids, none if nothing is left to do.

    A file is written for each run. So a transaction takes only a few of them, because other writers wait for
    it.
    """
    query = select(TrackedRunRow).where(
        TrackedRunRow.experiment == experiment.id, TrackedRunRow.stage != stage, TrackedRunRow.id != _FREE
    )
    rows = session.scalars(query.order_by(TrackedRunRow.id).limit(_STAGED_AT_ONCE).with_for_update()).all()
    for row in rows:
        set_stage(
            store,
            Tracked(row, experiment.id, experiment.project, experiment.artifacts, locked=True),
            stage,
            by,
        )
    return [row.id for row in rows]


def check_run_active(row: TrackedRunRow) -> None:
    """Refuse a deleted run.

    Raises:
        InvalidInput: the run is deleted.
    """
    if row.stage == DELETED:
        raise InvalidInput(f"The run {row.id} must be in the 'active' state. Current state is {row.stage}.")


def as_items(values: Mapping[str, str]) -> str:
    """Params or tags in the form of their column."""
    return json.dumps([{"key": key, "value": value} for key, value in values.items()], separators=(",", ":"))


def of_items(text: str) -> dict[str, Any]:
    """The values of params, tags or metrics by key, from their column."""
    return {item["key"]: item["value"] for item in json.loads(text)}


def plain_number(value: float) -> float | str:
    """A metric's value in JSON."""
    if math.isfinite(value):
        return value
    if math.isnan(value):
        return "NaN"
    if value > 0:
        return "Infinity"
    return "-Infinity"


def _new_params(run: str, logged: Mapping[str, str], params: Iterable[tuple[str, str]]) -> dict[str, str]:
    new: dict[str, str] = {}
    for key, value in params:
        before = logged.get(key, new.get(key))
        if before is not None and before != value:
            raise InvalidInput(
                f"Changing param values is not allowed. Param with key='{key}' was already logged with "
                f"value='{before}' for run ID='{run}'. Attempted logging new value '{value}'."
            )
        if before is None:
            new[key] = value
    return new


def _with_latest(text: str, points: Iterable[TrackedPoint]) -> str:
    """The column with the latest value of each metric: by step, then by time, then by value."""
    latest = {item["key"]: item for item in json.loads(text)}
    for point in points:
        before = latest.get(point.key)
        if before is not None:
            order = _order(before["step"], before["timestamp"], float(before["value"]))
            if order > _order(point.step, point.time, point.value):
                continue
        latest[point.key] = {
            "key": point.key,
            "value": plain_number(point.value),
            "timestamp": point.time,
            "step": point.step,
        }
    return json.dumps([latest[key] for key in sorted(latest)], separators=(",", ":"))


def _with_models(text: str, models: Sequence[dict[str, Any]]) -> str:
    """The column with more models, each of them once."""
    if not models:
        return text
    by_id = {model["model_id"]: model for model in [*json.loads(text), *models]}
    return json.dumps(list(by_id.values()), separators=(",", ":"))


def _order(step: int, time: int, value: float) -> tuple[int, int, float]:
    if math.isnan(value):  # NaN has no order.
        value = -math.inf
    return step, time, value


def _with_inputs(text: str, inputs: Iterable[dict[str, Any]]) -> str:
    """The column with more inputs; a dataset, by its name and digest, is in it only once."""
    by_dataset: dict[tuple[str, str], dict[str, Any]] = {}
    for item in [*json.loads(text), *inputs]:
        dataset = item["dataset"]
        by_dataset.setdefault((dataset["name"], dataset["digest"]), item)
    return json.dumps(list(by_dataset.values()), separators=(",", ":"))


def _amend(store: Store, tracked: Tracked) -> None:
    run_files.amend(store, tracked.project, tracked.row.id, _facts(tracked.row))


def _facts(row: TrackedRunRow) -> dict[str, Any]:
    status = None
    if row.ended is not None and row.ended != row.status:
        status = row.status
    return {
        "name": row.name,
        "user": row.user,
        "stage": row.stage,
        "status": status,
        "attempt": row.attempt,
        "params": of_items(row.params),
        "tags": of_items(row.tags),
        "inputs": json.loads(row.inputs),
        "model_inputs": json.loads(row.model_inputs),
        "outputs": json.loads(row.outputs),
    }
