"""MLflow's messages in JSON, as its own server writes them.

64-bit integers are numbers, and empty lists are left out.
"""

import json
from collections.abc import Sequence
from typing import Any

from resources.catalog import ExperimentRow, TrackedRunRow
from resources.tracking.experiments import ACTIVE, DELETED

STATUSES = {
    "RUNNING": "running",
    "SCHEDULED": "scheduled",
    "FINISHED": "finished",
    "FAILED": "failed",
    "KILLED": "terminated",
}
"""Of runs: ours by MLflow's, in the order of its enum, which counts from 1."""

_THEIRS = {ours: theirs for theirs, ours in STATUSES.items()}


def without_empty(**lists: Sequence[Any]) -> dict[str, Any]:
    """The lists that are not empty, because MLflow's messages leave out empty ones."""
    return {name: items for name, items in lists.items() if items}


def experiment_form(row: ExperimentRow) -> dict[str, Any]:
    tags = [{"key": key, "value": value} for key, value in row.tags.items()]
    return {
        "experiment_id": str(row.id),
        "name": row.name,
        "artifact_location": row.artifacts,
        "lifecycle_stage": row.stage,
        "last_update_time": row.updated,
        "creation_time": row.created,
        **without_empty(tags=tags),
    }


def artifact_uri(artifacts: str, run: str) -> str:
    """The URI of a run's artifacts below its experiment's location."""
    return f"{artifacts.rstrip('/')}/{run}/artifacts"


def artifact_form(path: str, size: int | None) -> dict[str, Any]:
    """A file among artifacts, or a folder, which has no size."""
    if size is None:
        return {"path": path, "is_dir": True}
    return {"path": path, "is_dir": False, "file_size": size}


def info_form(row: TrackedRunRow, artifacts: str) -> dict[str, Any]:
    """A run's ``info``; ``artifacts`` is the experiment's location."""
    return {
        "run_uuid": row.id,
        "experiment_id": str(row.experiment),
        "run_name": row.name,
        "user_id": row.user,
        "status": _THEIRS[row.status],
        "start_time": row.started,
        **({} if row.ended_at is None else {"end_time": row.ended_at}),
        "artifact_uri": artifact_uri(artifacts, row.id),
        # MLflow's clients do not know archived runs.
        "lifecycle_stage": DELETED if row.stage == DELETED else ACTIVE,
        "run_id": row.id,
    }


def run_json(row: TrackedRunRow, artifacts: str) -> str:
    """A run as JSON.

    The row's JSON is copied without being parsed, which would be most of the work for a thousand runs.
    """
    data = _splice(("metrics", row.metrics), ("params", row.params), ("tags", row.tags))
    inputs = _splice(("dataset_inputs", row.inputs), ("model_inputs", row.model_inputs))
    outputs = _splice(("model_outputs", row.outputs))
    info = json.dumps(info_form(row, artifacts))
    return f'{{"info":{info},"data":{data},"inputs":{inputs},"outputs":{outputs}}}'


def status_of(status: object) -> str | None:
    """Our status for MLflow's name or enum number; None for an unknown one."""
    if isinstance(status, int) and not isinstance(status, bool) and 1 <= status <= len(STATUSES):
        return list(STATUSES.values())[status - 1]
    if isinstance(status, str):
        return STATUSES.get(status)
    return None


def _splice(*parts: tuple[str, str]) -> str:
    """Join arrays that are JSON already into an object, leaving out empty ones."""
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts if text != "[]") + "}"
