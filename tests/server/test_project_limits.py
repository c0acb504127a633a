"""A token limited to projects learns nothing about others, and neither does what it launches."""

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from resources.alerts.alert import Alert
from resources.alerts.outbox import raise_alert
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import IntentRow, ModelVersionRow, SweepRow
from resources.datasets.snapshots import take_snapshot
from resources.links.shared_links import create_link
from resources.links.targets import Target
from resources.scheduling import intents
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import SweepSpec, parse_spec
from resources.views.saved_views import save_view
from resources.watch.rules import set_rule
from server.identity.tokens import create_token
from server.settings import Settings
from tests.backends import SMALL, snapshot_row
from tests.server.clients import ADDRESS, client_of
from tests.server.registry import promote_winner

MINE = parse_spec({**SMALL, "name": "mine", "max_trials": 1})
OTHER = parse_spec(
    {
        **SMALL,
        "name": "secretproj",
        "trainable": "secretcode:train",
        "predictor": "secretcode:predict",
        "max_trials": 1,
    }
)
UNKNOWN = "mine-12345678"
DIGEST = f"sha256:{'5ec' * 21}5"
OTHER_DATA = f"sha256:{'7ab' * 21}7"
STUDY = {**SMALL, "name": "{project}", "strategy": {"asha": {"sampler": "tpe", "max_budget": 9}}}
LOOP_STUDY = {name: value for name, value in STUDY.items() if name != "predictor"} | {"snapshot": "{digest}"}
TRAINING = {
    "project": "{project}",
    "trainable": "a:b",
    "dataset": "points@{digits}",
    "params": {"x": 1},
    "epochs": 3,
}
TRAINING |= {"objective": {"metric": "score", "direction": "maximize"}}
TRIAL = {"attempt": 1}
REQUESTS: list[tuple[str, str, str, Any]] = [
    ("GET", "/session", "", None),
    ("GET", "/alerts", "", None),
    ("GET", "/alerts", "project={project}", None),
    ("GET", "/alerts/rules", "", None),
    ("PUT", "/alerts/rules/{project}", "", {"silent_after": 900}),
    ("DELETE", "/alerts/rules/{project}", "", None),
    ("GET", "/alerts/channels", "", None),
    ("POST", "/alerts/channels", "", {"name": "x", "kind": "slack", "address": "https://a.example/"}),
    ("DELETE", "/alerts/channels/{name}", "", None),
    ("POST", "/alerts/channels/{name}/test", "", None),
    ("GET", "/alerts/dead", "", None),
    ("POST", "/alerts/dead/{message}/retry", "", None),
    ("GET", "/journal", "", None),
    ("GET", "/journal", "project={project}", None),
    ("GET", "/journal", "kind=run&subject={project}/{run}", None),
    ("GET", "/journal", "subject={study}", None),
    ("GET", "/journal", "subject={project}", None),
    ("GET", "/journal", "subject={run}", None),
    ("GET", "/journal", "kind=model&subject={model}@{version}", None),
    ("POST", "/journal", "", {"kind": "run", "subject": "{project}/{run}", "text": "n"}),
    ("POST", "/journal", "", {"kind": "sweep", "subject": "{study}", "text": "n"}),
    ("POST", "/journal", "", {"kind": "model", "subject": "{model}@{version}", "text": "n"}),
    ("POST", "/journal", "", {"kind": "project", "subject": "{project}", "text": "n"}),
    ("GET", "/runs", "", None),
    ("GET", "/runs", "project={project}", None),
    ("GET", "/runs", "filter=project = {project}", None),
    ("GET", "/runs/groups", "by=project,params.x", None),
    ("GET", "/runs/columns", "project={project}", None),
    ("GET", "/runs/columns", "", None),
    ("GET", "/runs/diff", "run={project}/{run}&run=mine/{run}", None),
    ("GET", "/runs/{project}/{run}", "", None),
    ("POST", "/runs/{project}/{run}/archive", "", None),
    ("POST", "/runs/{project}/{run}/delete", "", None),
    ("POST", "/runs/{project}/{run}/restore", "", None),
    ("POST", "/runs/{project}/{run}/tags", "", {"tags": {"a": "b"}}),
    ("GET", "/curves", "run={project}/{run}&key=score", None),
    ("GET", "/curves", "run={project}/{run}&key=nothing", None),
    ("GET", "/curves", "filter=&key=score", None),
    ("POST", "/curves", "", {"runs": ["{project}/{run}"], "keys": ["score"]}),
    ("GET", "/live", "run={project}/{gone}&key=score", None),
    ("GET", "/training-runs/{project}/{run}/metrics", "key=score", None),
    ("GET", "/media", "run={project}/{run}", None),
    ("GET", "/shared-page", "run={project}/{run}", None),
    ("GET", "/shared-page", "sweep={study}", None),
    ("GET", "/shared-page", "view=filter=project = {project}", None),
    ("GET", "/blobs/{digest}", "run={project}/{run}", None),
    ("GET", "/checkpoints/{digest}", "run={project}/{run}", None),
    ("GET", "/blobs/{digest}/rows", "run={project}/{run}", None),
    ("GET", "/blobs/{digest}/page", "run={project}/{run}", None),
    ("PUT", "/blobs/{digest}", "", None),
    ("GET", "/files", "folder=runs/project={project}/{run}", None),
    ("GET", "/files/{name}", "", None),
    ("PUT", "/files/{name}", "", {"status": "finished"}),
    ("POST", "/ingest/begin", "", {"project": "{project}", "run": "{run}"}),
    (
        "POST",
        "/ingest",
        "project={project}&run={run}&attempt=1&sequence=0",
        {"points": [{"key": "a", "step": 0, "value": 1}]},
    ),
    ("GET", "/ingest", "project={project}&run={run}&attempt=1", None),
    ("POST", "/ingest/end", "", {"project": "{project}", "run": "{run}", "attempt": 1}),
    ("GET", "/hpo/studies", "", None),
    ("GET", "/hpo/studies", "project={project}", None),
    ("GET", "/hpo/studies/{study}", "", None),
    ("POST", "/hpo/studies/{study}/pause", "", None),
    ("POST", "/hpo/studies/{study}/resume", "", None),
    ("POST", "/hpo/studies/{study}/stop", "", None),
    ("POST", "/hpo/studies/{study}/extend", "", {"max_trials": 9}),
    ("POST", "/hpo/studies", "", STUDY),
    ("POST", "/hpo/studies", "driver=api", {**LOOP_STUDY, "warm_start": "auto"}),
    ("POST", "/hpo/studies", "driver=api", {**LOOP_STUDY, "warm_start": ["{study}"]}),
    ("POST", "/hpo/studies", "driver=api", {**LOOP_STUDY, "dataset": None, "snapshot": "points@{digits}"}),
    ("GET", "/hpo/studies/intents/{intent}", "", None),
    ("POST", "/training-runs", "", TRAINING),
    ("GET", "/training-runs/{project}/{run}", "", None),
    ("POST", "/training-runs/{project}/{run}/cancel", "", None),
    ("POST", "/training-runs/{project}/{run}/checkpoints/{epoch}/restore", "", None),
    ("POST", "/hpo/studies/{study}/ask", "", None),
    (
        "POST",
        "/hpo/studies/{study}/trials/{number}/tell",
        "",
        {**TRIAL, "epoch": 1, "values": {"score": 1.0}},
    ),
    ("POST", "/hpo/studies/{study}/trials/{number}/heartbeat", "", TRIAL),
    ("POST", "/hpo/studies/{study}/trials/{number}/fail", "", {**TRIAL, "error": "no"}),
    ("POST", "/hpo/studies/{study}/trials/{number}/release", "", TRIAL),
    ("GET", "/models", "", None),
    ("GET", "/models/{model}", "", None),
    ("GET", "/models/{model}/champion", "", None),
    ("GET", "/models/{model}/history", "", None),
    ("POST", "/models/{model}/versions/{version}/promote", "", None),
    ("POST", "/models/{model}/versions/{version}/approve", "", {"note": "good"}),
    ("POST", "/models/{model}/versions/{version}/reject", "", {"note": "bad"}),
    ("POST", "/models/{model}/rollback", "", None),
    ("POST", "/models/{model}/versions/{version}/archive", "", None),
    ("GET", "/datasets", "", None),
    ("GET", "/datasets/{name}", "", None),
    ("GET", "/datasets/{name}/{snapshot}", "", None),
    ("GET", "/reports", "", None),
    ("GET", "/reports", "project={project}", None),
    ("GET", "/reports/{study}", "", None),
    ("GET", "/reports/{study}/gates", "", None),
    ("GET", "/reports/{study}/page", "", None),
    ("GET", "/write-log", "", None),
    ("GET", "/views", "", None),
    ("GET", "/views", "project={project}", None),
    ("PUT", "/views/{project}/{view}", "", {"query": "tab=diff"}),
    ("GET", "/views/{project}/{view}", "", None),
    ("POST", "/links", "", {"kind": "view", "target": "{project}/{view}"}),
    ("DELETE", "/views/{project}/{view}", "", None),
    ("GET", "/links", "", None),
    ("GET", "/links", "project={project}", None),
    ("POST", "/links", "", {"kind": "run", "target": "{project}/{run}"}),
    ("POST", "/links", "", {"kind": "sweep", "target": "{study}"}),
    ("POST", "/links", "", {"kind": "report", "target": "{study}"}),
    ("POST", "/links", "", {"kind": "view", "target": "tab=diff", "projects": ["{project}"]}),
    ("POST", "/links", "", {"kind": "view", "target": "tab=diff", "projects": ["mine", "{project}"]}),
    ("DELETE", "/links/{link}", "", None),
]
"""Method, path, query and body; what is in braces is filled in with what is the caller's, what is another's,
and what nobody has.
"""
OTHERS_VIEW = {"mine": "loss", "secretproj": "secretview"}
OF_NOBODY = {
    "/alerts/events",
    "/health",
    "/ready",
    "/signed/{address}",
    "/signed/parts/{address}",
    "/openapi.json",
}


@dataclass(frozen=True)
class Place:
    """A server with two projects.

    Attributes:
        client: with a token of one of them.
        values: what may be filled into a request, by the name of its place.
        secret: what only those may read who see the other project.
    """

    client: TestClient
    values: dict[str, list[str]]
    secret: list[str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    backend = Backend(root=str(tmp_path_factory.mktemp("limits") / "root"))
    mine, other = (
        promote_winner(backend, spec, checkpoint=spec.name.encode(), curves=True) for spec in (MINE, OTHER)
    )
    waiting = [asked_for(backend, spec) for spec in (MINE, OTHER)]
    with backend.catalog.write() as session:
        session.add(snapshot_row(OTHER_DATA, name="secretdata"))
    open_sweep(backend.catalog, OTHER, OTHER_DATA, driver="job", commit=None)
    Refresher(backend.store, backend.catalog).refresh()
    links = [shared(backend, project, study) for project, study in (("mine", mine), ("secretproj", other))]
    token = create_token(backend.catalog, "ada", scope="write", projects=["mine", "empty"])
    studies = [mine.sweep, other.sweep, UNKNOWN, *(row.sweep for row in waiting)]
    their_runs = [(MINE, mine.sweep), (OTHER, other.sweep), (OTHER, UNKNOWN)]
    values = {
        "project": ["mine", "empty", "secretproj"],
        "run": [f"{study}.0000" for study in studies],
        "gone": [f"{UNKNOWN}.0000", f"{other.sweep}.0000"],
        "study": studies,
        "model": ["mine", "empty", "secretproj"],
        "version": ["1.0.0", "9.9.9"],
        "intent": [*(row.id for row in waiting), "none"],
        "digest": [mine.snapshot, mine.checkpoint, other.checkpoint, OTHER_DATA, DIGEST],
        "digits": [mine.snapshot[7:15], OTHER_DATA[7:15], "0000"],
        "snapshot": [mine.snapshot[7:15], OTHER_DATA[7:15], "0000"],
        "name": [
            "points",
            "secretdata",
            "nothing",
            *(f"runs/project={project.name}/{study}.0000/record.json" for project, study in their_runs),
        ],
        "epoch": ["1"],
        "number": ["0"],
        "view": ["kept", "nothing"],
        "link": [*links, "0" * 16],
        "message": ["msg_0"],
    }
    secret = [
        "secretproj",
        "secretcode",
        "secretdata",
        other.sweep,
        waiting[1].id,
        waiting[1].sweep,
        other.checkpoint,
        OTHER_DATA,
        links[1],
        "secretview",
    ]
    with client_of(Settings(root=backend.store.root, tokens=True), f"{ADDRESS}/api/v1") as client:
        client.headers["Authorization"] = f"Bearer {token}"
        yield Place(client, values, secret)
    backend.catalog.close()


def asked_for(backend: Backend, spec: SweepSpec) -> IntentRow:
    with backend.catalog.write() as session:
        return intents.add(session, spec, kind="study", driver="sensors", actor="ada")


def shared(backend: Backend, project: str, version: ModelVersionRow) -> str:
    """A saved view, a link, a rule of alerts and an alert of a project; returns the link's id."""
    with backend.catalog.write() as session:
        set_rule(session, project, 900.0, [], actor="ben")
        alert = Alert(
            f"k:{project}", "crashed", "run", f"{project}/r", f"{project}/r crashed", project=project
        )
        raise_alert(session, alert, backend.catalog.now())
        save_view(session, project, "kept", f"metrics={OTHERS_VIEW[project]}", revision=None, by="ben")
        target = Target("sweep", version.sweep, [project])
        return create_link(session, target, by="ben", token=None)[0].id


@pytest.mark.parametrize(
    ("method", "path", "query", "body"), REQUESTS, ids=lambda part: str(part)[:40] or "-"
)
def test_no_answer_names_what_is_of_another_project(
    place: Place, method: str, path: str, query: str, body: Any
) -> None:
    template = json.dumps([path, query, body])
    names = [name for name in place.values if f"{{{name}}}" in template]
    for chosen in itertools.product(*(place.values[name] for name in names)):
        filled = template
        for name, value in zip(names, chosen, strict=True):
            filled = filled.replace(f"{{{name}}}", value)
        below, requested, sent = json.loads(filled)
        answer = place.client.request(method, f"{below}?{requested}", json=without_none(sent))
        said = answer.text + str(dict(answer.headers))
        assert answer.status_code != 500, filled
        assert [word for word in place.secret if word in said and word not in filled] == [], (
            answer.status_code,
            said,
            filled,
        )


def without_none(sent: Any) -> Any:
    return {name: value for name, value in sent.items() if value is not None} if sent else sent


def test_every_route_is_among_those_that_are_asked(place: Place) -> None:
    paths = place.client.app.state.routes.paths.values()  # type: ignore[attr-defined]
    routes = {
        path.removeprefix("/api/v1").replace("{sweep}", "{study}")
        for path in paths
        if path.startswith("/api/v1")
    }
    assert routes - {path for _, path, *_ in REQUESTS} == OF_NOBODY


@pytest.fixture
def studies(backend: Backend, small_spec: Callable[..., SweepSpec]) -> tuple[str, str]:
    """Finished sweeps of two projects that learn from each other, if they may."""
    mine, other = (
        promote_winner(backend, small_spec(name=name, max_trials=1)).sweep for name in ("mine", "secretproj")
    )
    return mine, other


@pytest.fixture
def launch(
    guarded: TestClient, backend: Backend, bearer: Callable[..., dict[str, str]], studies: tuple[str, str]
) -> Callable[..., Response]:
    """Ask for a study by a token of the first project alone: ``launch("api", warm_start="auto")``."""
    snapshot = take_snapshot(backend.store, backend.catalog, MINE.dataset).digest
    spec = {**SMALL, "name": "mine", "snapshot": snapshot, "strategy": {"tpe": {"budget": 3}}}
    del spec["predictor"]
    headers = bearer("ada", scope="write", projects=["mine"])
    return lambda driver, **changes: guarded.post(
        f"/api/v1/hpo/studies?driver={driver}", json={**spec, **changes}, headers=headers
    )


def test_a_study_learns_from_sweeps_of_its_callers_projects_alone(
    launch: Callable[..., Response], backend: Backend, studies: tuple[str, str]
) -> None:
    opened = launch("api", warm_start="auto").json()
    with backend.catalog.read() as session:
        assert session.get_one(SweepRow, opened["study"]).warm_start == [studies[0]]


def test_a_sweep_of_another_project_is_no_source_as_one_that_is_not_there(
    launch: Callable[..., Response], studies: tuple[str, str]
) -> None:
    for sweep in (studies[1], "nobody-1234"):
        refused = launch("api", warm_start=[sweep])
        detail = (
            f"warm_start = {sweep!r} is not accepted: no sweep {sweep!r} in the catalog; leave it out, or "
            "give auto to take whatever fits"
        )
        assert (refused.status_code, refused.json()["detail"]) == (422, detail)


def test_what_dagster_opens_later_keeps_the_projects_of_who_asked(
    launch: Callable[..., Response], backend: Backend
) -> None:
    intent = launch("sensors", warm_start="auto").json()
    assert intents.find(backend.catalog, intent["intent"]).payload["projects"] == ["mine"]


def test_a_study_is_launched_in_its_callers_projects_alone_whatever_its_name_is(
    launch: Callable[..., Response],
) -> None:
    assert launch("sensors", project="secretproj").status_code == 404
    assert launch("sensors", project="mine", name="secretproj").status_code == 404


@pytest.mark.parametrize(("project", "status"), [("secretproj", 404), ("mine", 202)])
def test_a_study_goes_on_from_checkpoints_of_its_callers_projects_alone(
    launch: Callable[..., Response], project: str, status: int
) -> None:
    answer = launch(
        "sensors", restored_from={"project": project, "run": "a.0000", "epoch": 1, "checkpoint": DIGEST}
    )
    assert answer.status_code == status, answer.text
