"""Models that runs have logged, which MLflow 3 keeps beside its registry.

Each model's data is in the catalog, and in its run's folder in the store.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from halving.errors import NotFound
from halving.store.json_files import to_json
from halving.store.store import Store
from resources.catalog import ExperimentRow, LoggedModelRow
from resources.tracking import runs
from resources.tracking.experiments import ACTIVE, DELETED, now_ms
from resources.tracking.runs import Tracked

_KEPT = 4  # files of a model, of which only the newest counts
_ALONE = {"mlflow.note.content": "Made for a model that was logged outside of a run."}
Message = dict[str, Any]
"""A model in the form of MLflow's message: ``info`` and ``data``."""


def run_of_model(session: Session, store: Store, experiment: ExperimentRow, name: str) -> Tracked:
    """Create a finished run for a model that is logged outside of a run, to hold its data and files.

    Raises:
        InvalidInput: the experiment is deleted.
    """
    run = uuid.uuid4().hex
    now = now_ms()
    tracked = runs.create_run(
        session, store, experiment, run, name=name, user="", started=now, tags=_ALONE, of_model=True
    )
    runs.update(store, tracked, name=None, status="finished", ended=now)
    return tracked


def create_model(
    session: Session, store: Store, tracked: Tracked, info: Mapping[str, Any], params: list[dict[str, str]]
) -> Message:
    """Add a model to a locked run.

    Args:
        info: fields of the message's ``info`` that come from the client.
        params: the params as a list of ``{"key": …, "value": …}``.
    """
    model = f"m-{uuid.uuid4().hex}"
    now = now_ms()
    message: Message = {
        "info": {
            "model_id": model,
            "experiment_id": str(tracked.experiment),
            "creation_timestamp_ms": now,
            "last_updated_timestamp_ms": now,
            "artifact_uri": f"{tracked.artifacts.rstrip('/')}/models/{model}/artifacts",
            "status": "LOGGED_MODEL_PENDING",
        },
        "data": {},
    }
    if not tracked.row.of_model:
        message["info"]["source_run_id"] = tracked.row.id
    message["info"] |= info
    if params:
        message["data"]["params"] = params
    row = LoggedModelRow(
        id=model, run=tracked.row.id, experiment=tracked.experiment, stage=ACTIVE, created=now, message=""
    )
    _write(store, tracked, row, message)
    session.add(row)
    session.flush()
    return message


def find_model(session: Session, model: str, *, deleted: bool = False) -> LoggedModelRow:
    """Find a model by its id.

    Args:
        deleted: whether a deleted model is returned, too.

    Raises:
        NotFound: there is none of this id.
    """
    row = session.get(LoggedModelRow, model)
    if row is None or (row.stage != ACTIVE and not deleted):
        raise NotFound(f"Logged model with ID '{model}' not found.")
    return row


def lock_models(
    session: Session, models: Iterable[str], run: str = ""
) -> tuple[dict[str, LoggedModelRow], dict[str, Tracked]]:
    """Lock models until the transaction ends.

    A model's lock is that of its run. All callers lock runs in the same order, so that no two of them wait
    for each other.

    Args:
        run: another run to lock; "" for none.

    Returns:
        The models by id, read after they were locked, and the locked runs by id.

    Raises:
        NotFound: a model or ``run`` does not exist, or a model is deleted.
    """
    run_by_model = {model: find_model(session, model).run for model in models}
    run_ids = sorted({*run_by_model.values(), run} - {""})
    locked = {run_id: runs.find_run(session, run_id, lock=True) for run_id in run_ids}
    for model in run_by_model:
        session.refresh(session.get_one(LoggedModelRow, model))
    return {model: find_model(session, model) for model in run_by_model}, locked


def list_models(session: Session, experiments: list[int]) -> list[Message]:
    """List the models of these experiments, the newest first; deleted ones are left out."""
    query = select(LoggedModelRow.message).where(
        LoggedModelRow.experiment.in_(experiments), LoggedModelRow.stage == ACTIVE
    )
    return [
        json.loads(text)
        for text in session.scalars(query.order_by(LoggedModelRow.created.desc(), LoggedModelRow.id))
    ]


def change_model(store: Store, tracked: Tracked, row: LoggedModelRow, message: Message) -> None:
    """Replace the message of a model of a locked run."""
    message["info"]["last_updated_timestamp_ms"] = now_ms()
    _write(store, tracked, row, message)


def delete_model(store: Store, tracked: Tracked, row: LoggedModelRow) -> None:
    """Delete a model of a locked run; its files stay."""
    row.stage = DELETED
    _write(store, tracked, row, json.loads(row.message))


def _write(store: Store, tracked: Tracked, row: LoggedModelRow, message: Message) -> None:
    folder = f"runs/project={tracked.project}/{tracked.row.id}/models/{row.id}"
    numbers = [
        int(name.removesuffix(".json"))
        for name in store.names(folder)
        if name.removesuffix(".json").isdecimal()
    ]
    number = max(numbers, default=-1) + 1
    store.create(f"{folder}/{number:06d}.json", to_json({"stage": row.stage, "message": message}))
    for old in numbers:
        if old <= number - _KEPT:
            store.delete(f"{folder}/{old:06d}.json")
    row.message = json.dumps(message, separators=(",", ":"))
