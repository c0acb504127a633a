"""Experiments: our projects, under the names that clients gave them."""

from typing import Any
from urllib.parse import urlparse

from sqlalchemy.orm import Session

from halving.errors import InvalidInput
from halving.records.amendments import Lifecycle
from resources.catalog import ExperimentRow
from resources.retention.lifecycle import set_lifecycle_of_some
from resources.retention.reached import needed_runs
from resources.tracking import artifacts, experiments
from resources.tracking.experiments import ACTIVE, DELETED
from server.mlflow import call as fields
from server.mlflow import pages
from server.mlflow.call import Call, checked_text, too_long
from server.mlflow.forms import experiment_form, without_empty
from server.mlflow.grammar import its_errors, search_utils
from server.mlflow.refusals import Refused, check_host

_MAX_NAME_LETTERS = 500
_MAX_TAG_LETTERS = 20_000
_MAX_LOCATION_LETTERS = 2_048
_MAX_EXPERIMENTS = 50_000
_HERE = "mlflow-artifacts:"


def create(call: Call) -> dict[str, Any]:
    name = _name(call, "name")
    location = call.maybe_text("artifact_location")
    if location:
        _check_location(location)
    with call.state.catalog.write(exclusive=True) as session:
        project = experiments.project_of(session, name)
        call.check(project, f"experiment {name!r}")
        pairs = [_tag(item) for item in call.objects("tags")]
        tags = dict(pairs)
        if len(tags) < len(pairs):
            raise Refused("RESOURCE_ALREADY_EXISTS", "Duplicate tag keys have been submitted")
        row = experiments.create_experiment(session, name, project, tags, location or None)
        call.log_write(session)
        return {"experiment_id": str(row.id)}


def get(call: Call) -> dict[str, Any]:
    with call.state.catalog.read() as session:
        return {"experiment": experiment_form(visible_experiment(call, session, call.experiment()))}


def get_by_name(call: Call) -> dict[str, Any]:
    name = call.text("experiment_name")
    with call.state.catalog.read() as session:
        row = experiments.named_experiment(session, name)
        call.check(row.project, f"experiment {name!r}")
        return {"experiment": experiment_form(row)}


def search(call: Call) -> dict[str, Any]:
    count = pages.size(call, 1_000, _MAX_EXPERIMENTS)
    begins = pages.offset(call)
    chosen = pages.stages(call, "view_type")
    with call.state.catalog.read() as session:
        rows = [row for row in experiments.list_experiments(session, chosen) if call.caller.sees(row.project)]
    filter_text = call.maybe_text("filter")
    orders = call.texts("order_by")
    if filter_text or orders:
        utils = search_utils("SearchExperimentsUtils")
        with its_errors():
            matching = utils.sort(
                utils.filter([_Searched(row) for row in rows], filter_text), orders or ["creation_time DESC"]
            )
        rows = [match.row for match in matching]
    page_rows, following = pages.page(rows, begins, count)
    return without_empty(experiments=[experiment_form(row) for row in page_rows]) | following


def update(call: Call) -> dict[str, Any]:
    name = _name(call, "new_name")
    # Otherwise the name would be taken from those who see that project.
    call.check(experiments.project_like(name), f"experiment {name!r}")
    with call.state.catalog.write(exclusive=True) as session:
        experiments.rename_experiment(
            session, visible_experiment(call, session, call.experiment(), lock=True), name
        )
        call.log_write(session)
    return {}


def delete(call: Call) -> dict[str, Any]:
    return _set_stage(call, DELETED)


def restore(call: Call) -> dict[str, Any]:
    return _set_stage(call, ACTIVE)


def set_tag(call: Call) -> dict[str, Any]:
    key, value = _tag(call.fields)
    with call.state.catalog.write() as session:
        row = visible_experiment(call, session, call.experiment(), lock=True)
        experiments.check_active(row)
        row.tags = {**row.tags, key: value}
        call.log_write(session)
    return {}


def delete_tag(call: Call) -> dict[str, Any]:
    key = call.text("key")
    with call.state.catalog.write() as session:
        row = visible_experiment(call, session, call.experiment(), lock=True)
        experiments.check_active(row)
        if key not in row.tags:
            raise Refused(
                "RESOURCE_DOES_NOT_EXIST", f"No tag with name: {key} in experiment with id {row.id}"
            )
        row.tags = {name: value for name, value in row.tags.items() if name != key}
        call.log_write(session)
    return {}


def visible_experiment(call: Call, session: Session, experiment: int, *, lock: bool = False) -> ExperimentRow:
    """Find an experiment that the caller may see."""
    row = experiments.find_experiment(session, experiment, lock=lock)
    call.check(row.project, f"experiment {experiment}")
    return row


class _Searched:
    """An experiment with MLflow's attribute names, for its search functions."""

    def __init__(self, row: ExperimentRow) -> None:
        self.row = row
        self.name = row.name
        self.experiment_id = str(row.id)
        self.tags = row.tags
        self.creation_time = row.created
        self.last_update_time = row.updated


def _set_stage(call: Call, stage: Lifecycle) -> dict[str, Any]:
    """Change the stage of an experiment and of its runs.

    The runs come first, in transactions of their own: after a kill the request can be repeated, and the store
    never says otherwise.
    """
    with call.state.catalog.read() as session:
        row = visible_experiment(call, session, call.experiment())
        experiments.check_stage(row, stage)
        if stage == DELETED and (needed := needed_runs(session, row.project)):
            raise InvalidInput(f"The experiment {row.id} is not deleted: {needed}")
    while True:
        with call.state.catalog.write() as session:
            row = visible_experiment(call, session, call.experiment(), lock=True)
            experiments.check_stage(row, stage)
            if not set_lifecycle_of_some(session, call.state.store, row, stage, actor=call.caller.actor):
                experiments.set_stage(row, stage)
                call.log_write(session)
                return {}


def _name(call: Call, field: str) -> str:
    name = call.text(field)
    if len(name) > _MAX_NAME_LETTERS:
        raise too_long(field, _MAX_NAME_LETTERS)
    return name


def _check_location(location: str) -> None:
    parsed = urlparse(location)
    if parsed.fragment or parsed.params or "#" in location:
        raise Refused("INVALID_PARAMETER_VALUE", "'artifact_location' URL can't include fragments or params.")
    if len(location) > _MAX_LOCATION_LETTERS:
        message = (
            "Invalid artifact path length. The length of the artifact path cannot be greater than "
            f"{_MAX_LOCATION_LETTERS} characters."
        )
        raise Refused("INVALID_PARAMETER_VALUE", message)
    check_host(location, "artifact_location")
    if parsed.scheme == "runs":
        raise Refused(
            "INVALID_PARAMETER_VALUE", f"Artifact location cannot be a runs:/ URI. Given: '{location}'"
        )
    if parsed.scheme == "mlflow-artifacts" and (
        parsed.query or f"{parsed.path.strip('/')}/".startswith("registered-models/")
    ):
        raise Refused(
            "INVALID_PARAMETER_VALUE", f"artifact_location {location!r} is not accepted: its path is not free"
        )
    if parsed.scheme == "mlflow-artifacts" and parsed.path.strip("/"):
        artifacts.check_path(parsed.path.strip("/"))


def _tag(item: dict[str, Any]) -> tuple[str, str]:
    key = fields.key("key", item.get("key"))
    value = checked_text("value", fields.value_of(item))
    if len(value) > _MAX_TAG_LETTERS:
        raise too_long("value", _MAX_TAG_LETTERS)
    return key, value
