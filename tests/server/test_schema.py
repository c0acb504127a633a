"""Whatever is sent to the API, its answers are what its schema says, and none is an error of the server."""

from collections.abc import Iterator

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from resources.backend import Backend
from resources.sweep_spec import parse_spec
from server.app import create_app
from server.settings import Settings
from tests.backends import SMALL
from tests.searches import search
from tests.server.clients import ADDRESS
from tests.server.registry import promote_winner, score

pytestmark = pytest.mark.slow
EXAMPLES = 6  # of requests for each route
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
STREAMS = r"/live|/metrics$"  # they do not end


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FastAPI]:
    """A server on a store with something of everything."""
    root = str(tmp_path_factory.mktemp("schema") / "root")
    backend = Backend(root=root)
    promote_winner(backend, parse_spec({**SMALL, "max_trials": 1}))
    search(backend, parse_spec({**SMALL, "name": "digits", "max_trials": 2}), score, limit=1, curves=True)
    app = create_app(Settings(root=root))
    yield app
    app.state.halving.close()


@pytest.fixture(scope="module")
def api(app: FastAPI) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_asgi(
        "/api/v1/openapi.json", app, headers={"Host": ADDRESS.removeprefix("http://")}
    )


schema = schemathesis.pytest.from_fixture("api").exclude(path_regex=STREAMS)


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_the_schema_says(case: schemathesis.Case) -> None:
    case.call_and_validate(base_url=ADDRESS, checks=CHECKS)
