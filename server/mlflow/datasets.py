"""The datasets that runs have logged."""

import json
from typing import Any

from sqlalchemy import select

from resources.catalog import ExperimentRow, TrackedRunRow
from server.mlflow.call import Call, experiment_number
from server.mlflow.forms import without_empty
from server.mlflow.refusals import Refused

_MAX_EXPERIMENTS = 20
_MAX_SUMMARIES = 1_000
_CONTEXT = "mlflow.data.context"


def search(call: Call) -> dict[str, Any]:
    """The datasets that runs of some experiments have logged.

    Each appears once for each use, and there are at most a thousand, as with MLflow's server.
    """
    wanted = [experiment_number(value) for value in call.items("experiment_ids")]
    if not wanted:
        raise Refused(
            "INVALID_PARAMETER_VALUE", "SearchDatasets request must specify at least one experiment_id."
        )
    if len(wanted) > _MAX_EXPERIMENTS:
        message = (
            f"SearchDatasets request cannot specify more than {_MAX_EXPERIMENTS} experiment_ids. Received "
            f"{len(wanted)} experiment_ids."
        )
        raise Refused("INVALID_PARAMETER_VALUE", message)
    with call.state.catalog.read() as session:
        rows = session.scalars(select(ExperimentRow).where(ExperimentRow.id.in_(wanted)))
        visible = [row.id for row in rows if call.caller.sees(row.project)]
        query = select(TrackedRunRow.experiment, TrackedRunRow.inputs).where(
            TrackedRunRow.experiment.in_(visible), TrackedRunRow.inputs != "[]"
        )
        inputs = [
            (experiment, logged)
            for experiment, text in session.execute(query.distinct())
            for logged in json.loads(text)
        ]
    summaries = {}
    for experiment, logged in inputs:
        context = next((tag["value"] for tag in logged.get("tags", []) if tag["key"] == _CONTEXT), None)
        summary = {
            "experiment_id": str(experiment),
            "name": logged["dataset"]["name"],
            "digest": logged["dataset"]["digest"],
        }
        if context is not None:
            summary["context"] = context
        summaries[tuple(summary.values())] = summary
    first_summaries = list(summaries.values())[:_MAX_SUMMARIES]
    return without_empty(dataset_summaries=first_summaries)
