"""Runs by W&B's names on a client that has a server instead of a store."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from halving.query.runs import read_run
from resources.backend import Backend
from tests.ports import free_port
from tests.server.ingested import begin, stored_points
from tests.server.processes import is_answering
from tests.waiting import wait_for


@pytest.mark.slow
def test_a_run_is_recorded_and_resumed_over_http(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    monkeypatch.delenv("HALVING_ROOT", raising=False)
    monkeypatch.setenv("WANDB__DISABLE_STATS", "true")
    monkeypatch.chdir(tmp_path)
    import halving.wandb as wandb

    port = free_port()
    address = f"http://127.0.0.1:{port}"
    root = str(backend.store.root)
    command = [sys.executable, "-m", "halving.cli.main", "serve", "--port", str(port), "--root", root]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: is_answering(address), 120, "the server answers")
            monkeypatch.setenv("HALVING_URL", address)
            with wandb.init(project="p", id="r", config={"lr": 1}) as run:
                run.config.depth = 2
                run.define_metric("loss", summary="min")
                run.log({"loss": 2.0})
                run.log({"loss": 1.0})
                run.summary["best"] = 4
                run.alert("stuck", "the loss does not fall")
                assert run.url == f"{address}/runs/p/r"
            with wandb.init(project="p", id="r", resume="must") as run:
                assert (run.step, dict(run.config)) == (2, {"depth": 2, "lr": 1})
                run.name = "later"
                run.log({"loss": 3.0})
        finally:
            process.send_signal(signal.SIGTERM)
    info = read_run(backend.store, "p", "r")
    assert info.params == {"depth": 2, "lr": 1}
    assert info.tags == {"name": "later"}
    assert info.summary["loss/min"] == 1.0
    assert info.summary["best"] == 4.0
    assert info.defined_metrics == {"loss": {"summary": ["min"]}}
    assert stored_points(root, "r", project="p") == [(0, 2.0), (1, 1.0), (2, 3.0)]
    names = [name for name in backend.store.names("runs/project=p/r") if name.startswith("alert-")]
    assert len(names) == 1
    assert json.loads(backend.store.read(f"runs/project=p/r/{names[0]}"))["title"] == "stuck"


@pytest.mark.parametrize(
    ("amendment", "message"),
    [
        ({"lifecycle": "removed"}, "lifecycle = 'removed' is not accepted: it is None"),
        ({"status": "finished", "attempt": 1}, "attempt = 1 is not accepted"),
        ({"owner": "eve"}, "['owner'] are not accepted"),
        ({"params": [1]}, "params = [1] is not accepted: give an object"),
        ({"params": {"a": "\0"}}, "a text has NUL"),
        ({"tags": {"a": 1}}, "give an object of names to texts"),
        ({"tags": {"a": "\0"}}, "tags is not accepted: a text has NUL"),
        ({"summary": {"attempt": 1, "values": {"a": "b"}}}, "summary.values is not accepted"),
        ({"summary": {"attempt": [1], "values": {}}}, "attempt = [1] is not accepted"),
        ({"defined_metrics": {"loss": 5}}, "defined_metrics has 5"),
        ({"defined_metrics": {"loss": {"summary": [1]}}}, "defined_metrics has summary = [1]"),
    ],
)
def test_a_clients_amendment_changes_no_more_than_it_may(
    unchanged: TestClient, amendment: dict[str, object], message: str
) -> None:
    run = begin(unchanged)
    place = f"/api/v1/files/runs/project={run.project}/{run.run}/amend-000000.json"
    answer = unchanged.put(place, json=amendment)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]


def test_an_amendment_made_from_an_older_one_is_refused(unchanged: TestClient) -> None:
    run = begin(unchanged)
    folder = f"/api/v1/files/runs/project={run.project}/{run.run}"
    assert unchanged.put(f"{folder}/amend-000001.json", json={"params": {"a": 1}}).status_code == 201
    assert unchanged.put(f"{folder}/amend-000000.json", json={"params": {"a": 2}}).status_code == 409
    assert unchanged.put(f"{folder}/amend-000001.json", json={"params": {"a": 1}}).status_code == 201


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"title": "x" * 300}, "give a text of at most 200 characters"),
        ({"text": 3}, "text = 3 is not accepted"),
        ({"level": "loud"}, "give info, warn, error"),
        ({"attempt": 0}, "attempt = 0 is not accepted"),
        ({"time": "now"}, "time = 'now' is not accepted"),
    ],
)
def test_a_clients_wrong_alert_is_named(
    unchanged: TestClient, change: dict[str, object], message: str
) -> None:
    run = begin(unchanged)
    alert = {"title": "a", "text": "", "level": "info", "attempt": 1, "time": "2026-11-20T12:00:00+00:00"}
    place = f"/api/v1/files/runs/project={run.project}/{run.run}/alert-0001-000001-0123abcd.json"
    answer = unchanged.put(place, json=alert | change)
    assert answer.status_code == 422
    assert message in answer.json()["detail"]
