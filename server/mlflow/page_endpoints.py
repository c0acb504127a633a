"""Endpoints of MLflow's own page beside the API: single files, and histories of several runs.

Scripts use them, too.
"""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.orm import Session
from starlette.responses import Response

from resources.tracking import artifacts as files
from server.mlflow import artifacts
from server.mlflow.call import Call, missing
from server.mlflow.forms import artifact_uri
from server.mlflow.logged_models import visible_model
from server.mlflow.refusals import Refused
from server.mlflow.registry_forms import named_version, source_of
from server.mlflow.runs import visible_run


async def file_of_run(call: Call) -> Response:
    """Send a file among a run's artifacts."""
    return await _send(call, "path", lambda session: _root_of_run(call, session))


async def file_of_version(call: Call) -> Response:
    """Send a file of a version of a registered model."""
    return await _send(call, "path", lambda session: _root_of_version(call, session))


async def file_of_model(call: Call) -> Response:
    """Send a file of a logged model."""
    return await _send(
        call,
        "artifact_file_path",
        lambda session: str(visible_model(call, session)["info"]["artifact_uri"]),
    )


async def upload_file(call: Call, request: Request) -> dict[str, Any]:
    """Store a body as a file among a run's artifacts."""

    def address() -> str:
        with call.state.catalog.read() as session:
            return _address(_root_of_run(call, session), files.normal_path(call.text("path")))

    return await artifacts.put(call, await run_in_threadpool(address), request)


async def _send(call: Call, field: str, root: Callable[[Session], str]) -> Response:
    """Send a file below the folder that ``root`` finds."""
    if not call.maybe_text(field):
        raise missing(field)
    path = files.normal_path(call.text(field))

    def address() -> str:
        with call.state.catalog.read() as session:
            return _address(root(session), path)

    return await artifacts.get(call, await run_in_threadpool(address))


def _root_of_run(call: Call, session: Session) -> str:
    tracked = visible_run(call, session)
    return artifact_uri(tracked.artifacts, tracked.row.id)


def _root_of_version(call: Call, session: Session) -> str:
    row = named_version(call, session)
    return row.storage or source_of(row)


def _address(root: str, path: str) -> str:
    """The address of a file at the proxy of artifacts.

    Raises:
        Refused: the files are not here.
    """
    parsed = urlsplit(root)
    if parsed.scheme != "mlflow-artifacts":
        raise Refused(
            "INVALID_PARAMETER_VALUE",
            f"these files are in {root}, of which this server knows nothing: read them there",
        )
    return f"{parsed.path.strip('/')}/{path}"
