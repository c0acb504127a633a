"""Runs: create, read, update, delete and restore."""

import json
import uuid
from typing import Any

from sqlalchemy.orm import Session

from halving.records.amendments import Lifecycle
from resources.catalog import ExperimentRow
from resources.retention.lifecycle import set_lifecycle
from resources.tracking import runs
from resources.tracking.experiments import ACTIVE, DELETED, now_ms
from resources.tracking.runs import NAME_TAG, Tracked
from server.mlflow.call import Call, invalid
from server.mlflow.experiments import visible_experiment
from server.mlflow.forms import STATUSES, info_form, run_json, status_of
from server.mlflow.refusals import Refused

_MAX_NAME_LETTERS = 250


def create(call: Call) -> bytes:
    tags = call.tags()
    if len(tags) < len(call.objects("tags")):
        raise Refused("BAD_REQUEST", "Duplicate tag keys have been submitted")
    run = uuid.uuid4().hex
    chosen_name = call.maybe_text("run_name")
    tagged_name = tags.get(NAME_TAG)
    if chosen_name and tagged_name and chosen_name != tagged_name:
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Both 'run_name' argument and '{NAME_TAG}' tag are specified, but with different values "
            f"(run_name='{chosen_name}', {NAME_TAG}='{tagged_name}').",
        )
    name = (chosen_name or tagged_name or f"run-{run[:8]}")[:_MAX_NAME_LETTERS]
    user = call.maybe_text("user_id") or ""
    started = call.time("start_time") or now_ms()
    with call.state.catalog.write() as session:
        number = 0
        if call.fields.get("experiment_id") not in (None, ""):
            number = call.experiment()
        experiment: ExperimentRow = visible_experiment(call, session, number)
        made = runs.create_run(
            session, call.state.store, experiment, run, name=name, user=user, started=started, tags=tags
        )
        answer = run_json(made.row, made.artifacts)
    return f'{{"run":{answer}}}'.encode()


def get(call: Call) -> bytes:
    with call.state.catalog.read() as session:
        tracked = visible_run(call, session)
    return f'{{"run":{run_json(tracked.row, tracked.artifacts)}}}'.encode()


def update(call: Call) -> bytes:
    value = call.fields.get("status")
    status = None
    if value not in (None, ""):
        status = status_of(value)
        if status is None:
            raise invalid("status", value, f"give one of {', '.join(STATUSES)}")
    name = (call.maybe_text("run_name") or "")[:_MAX_NAME_LETTERS] or None
    ended = call.time("end_time")
    with call.state.catalog.write() as session:
        tracked = visible_run(call, session, lock=True)
        runs.update(
            call.state.store,
            tracked,
            name=name,
            status=status,
            ended=ended,
        )
        info = info_form(tracked.row, tracked.artifacts)
    return json.dumps({"run_info": info}).encode()


def delete(call: Call) -> dict[str, Any]:
    return _set_stage(call, DELETED)


def restore(call: Call) -> dict[str, Any]:
    return _set_stage(call, ACTIVE)


def visible_run(call: Call, session: Session, *, lock: bool = False) -> Tracked:
    """Find the run that a request names, if its caller may see it."""
    run = call.text("run_id", "run_uuid")
    tracked = runs.find_run(session, run, lock=lock)
    call.check(tracked.project, f"run {run!r}")
    return tracked


def _set_stage(call: Call, stage: Lifecycle) -> dict[str, Any]:
    with call.state.catalog.write() as session:
        tracked = visible_run(call, session, lock=True)
        set_lifecycle(
            session, call.state.store, tracked.project, tracked.row.id, stage, actor=call.caller.actor
        )
        call.log_write(session)
    return {}
