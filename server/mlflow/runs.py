"""Runs: begun, looked at, changed, deleted and restored."""

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
from server.mlflow.experiments import seen as seen_experiment
from server.mlflow.forms import STATUSES, info_form, run_json, status_of
from server.mlflow.refusals import Refused

_LONGEST_NAME = 250


def create(call: Call) -> bytes:
    tags = call.tags()
    if len(tags) < len(call.objects("tags")):
        raise Refused("BAD_REQUEST", "Duplicate tag keys have been submitted")
    run = uuid.uuid4().hex
    given = call.maybe_text("run_name")
    tagged = tags.get(NAME_TAG)
    if given and tagged and given != tagged:
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"Both 'run_name' argument and '{NAME_TAG}' tag are specified, but with different values "
            f"(run_name='{given}', "
            f"{NAME_TAG}='{tagged}').",
        )
    name = (given or tagged or f"run-{run[:8]}")[:_LONGEST_NAME]
    user = call.maybe_text("user_id") or ""
    started = call.moment("start_time") or now_ms()
    with call.state.catalog.write() as session:
        experiment: ExperimentRow = seen_experiment(
            call, session, call.experiment() if call.fields.get("experiment_id") not in (None, "") else 0
        )
        made = runs.create_run(
            session, call.state.store, experiment, run, name=name, user=user, started=started, tags=tags
        )
        answer = run_json(made.row, made.artifacts)
    return f'{{"run":{answer}}}'.encode()


def get(call: Call) -> bytes:
    with call.state.catalog.read() as session:
        found = seen(call, session)
    return f'{{"run":{run_json(found.row, found.artifacts)}}}'.encode()


def update(call: Call) -> bytes:
    given = call.fields.get("status")
    status = None if given in (None, "") else status_of(given)
    if status is None and given not in (None, ""):
        raise invalid("status", given, f"give one of {', '.join(STATUSES)}")
    name = call.maybe_text("run_name")
    ended = call.moment("end_time")
    with call.state.catalog.write() as session:
        found = seen(call, session, lock=True)
        runs.update(
            call.state.store, found, name=name[:_LONGEST_NAME] if name else None, status=status, ended=ended
        )
        info = info_form(found.row, found.artifacts)
    return json.dumps({"run_info": info}).encode()


def delete(call: Call) -> dict[str, Any]:
    return _staged(call, DELETED)


def restore(call: Call) -> dict[str, Any]:
    return _staged(call, ACTIVE)


def seen(call: Call, session: Session, *, lock: bool = False) -> Tracked:
    """The run that a request names, if its caller may see it."""
    run = call.text("run_id", "run_uuid")
    found = runs.find_run(session, run, lock=lock)
    call.check(found.project, f"run {run!r}")
    return found


def _staged(call: Call, stage: Lifecycle) -> dict[str, Any]:
    with call.state.catalog.write() as session:
        found = seen(call, session, lock=True)
        set_lifecycle(session, call.state.store, found.project, found.row.id, stage, actor=call.caller.actor)
        call.log_write(session)
    return {}
