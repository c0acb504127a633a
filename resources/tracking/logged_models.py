"""Models that runs have made, as MLflow 3 keeps them beside its registry.

What is known of one is in its run's folder, too.
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

_KEPT = 4  # amendments
_ALONE = {"mlflow.note.content": "Made for a model that was logged outside of a run."}
Message = dict[str, Any]
"""A model in the form of MLflow's message: ``info`` and ``data``."""


def run_of_model(session: Session, store: Store, experiment: ExperimentRow, name: str) -> Tracked:
    """A run for a model that is logged outside of one: it has ended already, and holds the model's record and
    files.

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
    """Add a model of a locked run."""
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
            **({} if tracked.row.of_model else {"source_run_id": tracked.row.id}),
            **info,
        },
        "data": {"params": params} if params else {},
    }
    row = LoggedModelRow(
        id=model, run=tracked.row.id, experiment=tracked.experiment, stage=ACTIVE, created=now, message=""
    )
    _write(store, tracked, row, message)
    session.add(row)
    session.flush()
    return message


def find_model(session: Session, model: str, *, deleted: bool = False) -> LoggedModelRow:
    """A model; with ``deleted`` also one that is.

    Raises:
        NotFound: there is none.
    """
    row = session.get(LoggedModelRow, model)
    if row is None or (row.stage != ACTIVE and not deleted):
        raise NotFound(f"Logged model with ID '{model}' not found.")
    return row


def lock_models(
    session: Session, models: Iterable[str], run: str = ""
) -> tuple[dict[str, LoggedModelRow], dict[str, Tracked]]:
    """Models by id, as they are while nobody else changes them, and their runs by id, with ``run`` among
    them.

    A model's lock is that of its run. The runs are locked in the same order by everybody, so that nobody
    waits in a circle.

    Raises:
        NotFound: one of them is not there.
    """
    of = {model: find_model(session, model).run for model in models}
    locked = {each: runs.find_run(session, each, lock=True) for each in sorted({*of.values(), run} - {""})}
    for model in of:
        session.refresh(session.get_one(LoggedModelRow, model))
    return {model: find_model(session, model) for model in of}, locked


def list_models(session: Session, experiments: list[int]) -> list[Message]:
    """All models of experiments, the newest first."""
    query = select(LoggedModelRow.message).where(
        LoggedModelRow.experiment.in_(experiments), LoggedModelRow.stage == ACTIVE
    )
    return [
        json.loads(text)
        for text in session.scalars(query.order_by(LoggedModelRow.created.desc(), LoggedModelRow.id))
    ]


def change_model(store: Store, tracked: Tracked, row: LoggedModelRow, message: Message) -> None:
    """Give a model of a locked run another message."""
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
