"""Runs over HTTP: what a filter chooses, groups of it, one run, and what differs."""

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

import halving
from halving.query import run_diff
from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.catalog import SweepRow
from resources.sweep_spec import SweepSpec
from server import daily_retention, index_refresher
from server.settings import Settings
from tests.indexed_runs import paused_trials, with_trial
from tests.run_filters import write_runs
from tests.server.clients import ADDRESS, client_of
from tests.waiting import wait_for

RUNS = "/api/v1/runs"


@pytest.fixture
def filled(backend: Backend) -> Backend:
    """A backend with some runs, and an index of them."""
    Refresher(write_runs(Path(backend.store.root)), backend.catalog).refresh()
    return backend


@pytest.fixture
def page(filled: Backend, local: TestClient) -> Callable[..., dict[str, Any]]:
    """What the server answers of the runs: ``page(filter="…")``."""

    def ask(path: str = "", **query: object) -> dict[str, Any]:
        answer = local.get(f"{RUNS}{path}", params=query)  # type: ignore[arg-type]
        assert answer.status_code == 200, answer.text
        content: dict[str, Any] = answer.json()
        return content

    return ask


def ids(page: dict[str, Any]) -> list[str]:
    return [run["id"] for run in page["runs"]]


def test_a_page_has_the_runs_that_the_filter_chooses_with_the_columns_asked_for(
    page: Callable[..., dict[str, Any]],
) -> None:
    content = page(
        filter="metrics.loss is not null order by params.lr",
        columns="params.lr,min(metrics.loss),tags.team",
        limit=2,
        offset=1,
    )
    assert (content["total"], ids(content)) == (4, ["digits/b", "digits/c"])
    assert content["runs"][0]["values"] == {
        "params.lr": 0.001,
        "min(metrics.loss)": 0.4,
        "tags.team": "nlp x",
    }
    assert content["runs"][1]["values"]["params.lr"] == "Infinity"
    assert content["runs"][0]["started"] == "2024-11-10T00:00:00+00:00"
    assert content["runs"][0]["trial"] == 10
    assert content["indexed_at"]
    assert page(filter="limit 2")["total"] == 2
    assert ids(page(filter="order by run limit 2", limit=5, offset=1)) == ["digits/b"]
    assert ids(page(project="text")) == ["text/e", "text/d"]
    assert page(project="nobody") == {**page(project="nobody"), "total": 0, "runs": []}


def test_an_answer_that_is_known_is_not_sent_again_until_a_run_changes(
    filled: Backend, local: TestClient
) -> None:
    for path in (RUNS, f"{RUNS}/columns", f"{RUNS}/groups?by=status"):
        query = {"filter": "started > 7d ago"} if path == RUNS else {}
        first = local.get(path, params=query or None)
        tag = first.headers["ETag"]
        again = local.get(path, params=query or None, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag)
    assert (
        local.get(RUNS, params={"limit": 1}, headers={"If-None-Match": first.headers["ETag"]}).status_code
        == 200
    )
    halving.init("digits", {}, filled.store.root, id="new", system_metrics=None).finish()
    Refresher(filled.store, filled.catalog).refresh()
    assert local.get(path, headers={"If-None-Match": tag}).status_code == 200


@pytest.mark.parametrize(
    ("query", "column", "said"),
    [
        ({"filter": "lr = 3"}, 1, "'lr' is not a field"),
        ({"filter": "params.lr ="}, 12, "where a value is expected"),
        ({"columns": "params.lr,,"}, None, "columns 'params.lr,,' is not accepted, column 11: "),
        ({"columns": ",".join(f"params.p{number}" for number in range(101))}, None, "give at most 100"),
        ({"limit": "1001"}, None, "less than or equal to 1000"),
        ({"offset": "-1"}, None, "greater than or equal to 0"),
    ],
)
def test_a_wrong_question_is_told_what_is_accepted(
    local: TestClient, query: dict[str, str], column: int | None, said: str
) -> None:
    answer = local.get(RUNS, params=query)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert answer.json().get("column") == column


def test_groups_are_counted_with_mean_and_deviation(
    page: Callable[..., dict[str, Any]], local: TestClient
) -> None:
    groups = page("/groups", by="project", filter="metrics.loss != nan", columns="metrics.loss")["groups"]
    assert [(group["key"], group["count"]) for group in groups] == [
        ({"project": "digits"}, 2),
        ({"project": "text"}, 1),
    ]
    assert groups[0]["values"]["metrics.loss"] == {
        "mean": 0.5,
        "std": pytest.approx(math.sqrt(0.02)),
        "count": 2,
    }
    assert groups[1]["values"]["metrics.loss"] == {"mean": 0.7, "std": None, "count": 1}
    keys = [group["key"]["params.lr"] for group in page("/groups", by="params.lr")["groups"]]
    assert {0.0001, 0.001, "Infinity", "auto", "NaN"} == set(keys)
    assert local.get(f"{RUNS}/groups", params={"by": ""}).status_code == 422
    assert (
        local.get(
            f"{RUNS}/groups", params={"by": ",".join(f"tags.t{number}" for number in range(9))}
        ).status_code
        == 422
    )


def test_names_are_completed(page: Callable[..., dict[str, Any]]) -> None:
    columns = page("/columns", prefix="metrics.v")
    assert columns["metrics"] == [{"name": "val/acc", "count": 2, "type": "number"}]
    assert {name["name"] for name in page("/columns")["params"]} >= {"lr", "optimizer/name", "my lr"}


def test_names_are_those_of_the_runs_that_the_filter_chooses(page: Callable[..., dict[str, Any]]) -> None:
    every = page("/columns")
    chosen = page("/columns", filter="project = text")
    assert {name["name"] for name in chosen["metrics"]} < {name["name"] for name in every["metrics"]}
    assert chosen["metrics"] == [{"name": name, "count": 1, "type": "number"} for name in ("back", "loss")]
    (first,) = page(filter="order by metrics.loss limit 1")["runs"]
    mine = page("/columns", filter="order by metrics.loss limit 1")["metrics"]
    assert {name["name"] for name in mine} == set(page(f"/{first['id']}")["metrics"])
    assert page("/columns", filter="run = nobody")["metrics"] == []


def test_one_run_has_all_that_is_known_of_it(page: Callable[..., dict[str, Any]], local: TestClient) -> None:
    content = page("/digits/a")
    assert content["params"]["optimizer"]["betas"] == [0.9, 0.99]
    assert content["metrics"]["loss"] == {"last": 0.6, "min": 0.5, "max": 1.0, "points": 3}
    assert content["index"]["id"] == content["id"] == "digits/a"
    assert set(content["files"]) == {"record", "segments", "full", "rollup"}, (
        "where the store and the journals are is not for all"
    )
    assert len(content["attempts"]) == 1
    missing = local.get(f"{RUNS}/digits/nobody")
    assert (
        missing.status_code,
        missing.json()["detail"].startswith("no run 'nobody' in project 'digits'"),
    ) == (404, True)
    assert local.get(f"{RUNS}/digits/.hidden").status_code == 422


def test_a_run_is_shown_before_it_is_in_the_index(filled: Backend, local: TestClient) -> None:
    halving.init("other", {}, filled.store.root, id="new", system_metrics=None).finish()
    content = local.get(f"{RUNS}/other/new").json()
    assert (content["status"], content["index"]) == ("finished", None)


def test_what_differs_comes_first(page: Callable[..., dict[str, Any]], local: TestClient) -> None:
    diff = page("/diff", run=["digits/a", "text/d"])
    assert [run["run"] for run in diff["runs"]] == ["a", "d"]
    assert diff["params"]["lr"] == {"differs": True, "values": [0.0001, "auto"]}
    differs = [row["differs"] for row in diff["packages"].values()]
    assert differs == sorted(differs, reverse=True)
    assert diff["patches"] == {"digits/a": None, "text/d": None}
    assert local.get(f"{RUNS}/diff", params={"run": ["digits/a", "digits/a"]}).status_code == 422
    assert local.get(f"{RUNS}/diff", params={"run": ["digits/a", "digits/nobody"]}).status_code == 404
    assert local.get(f"{RUNS}/diff", params={"run": ["digits/a", "a"]}).status_code == 422


@pytest.mark.slow
def test_a_difference_shows_the_code_as_a_patch_of_bounded_length(
    backend: Backend, local: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    git = ["git", "-C", str(code), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    (code / "train.py").write_text("lr = 1\n")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    program = (
        "import halving, sys; halving.init('code', {}, sys.argv[1], id=sys.argv[2], "
        "system_metrics=None).finish()"
    )
    for run in ("clean", "dirty"):
        if run == "dirty":
            (code / "train.py").write_text("lr = 2\n" + "# é\n" * 1000)
        subprocess.run([sys.executable, "-c", program, backend.store.root, run], cwd=code, check=True)
    query = {"run": ["code/clean", "code/dirty"]}
    patches = local.get(f"{RUNS}/diff", params=query).json()["patches"]
    assert patches["code/clean"] is None
    assert "-lr = 1\n+lr = 2\n" in patches["code/dirty"]
    monkeypatch.setattr(run_diff, "MAX_PATCH_BYTES", 500)
    cut = local.get(f"{RUNS}/diff", params=query).json()["patches"]["code/dirty"]
    assert len(cut.encode()) < 700
    assert "… and more: the whole is artifacts/sha256/" in cut


def test_who_asks_for_a_first_view_gets_what_the_newest_sweep_was_about(
    backend: Backend, local: TestClient, small_spec: Callable[..., SweepSpec]
) -> None:
    first_view = local.get(RUNS, params={"first_view": "true"}).json()
    assert (first_view["total"], first_view.get("view")) == (0, None)
    sweep = with_trial(backend, small_spec())
    Refresher(backend.store, backend.catalog).refresh()
    first = local.get(RUNS, params={"first_view": "true"})
    view = first.json()["view"]
    assert view == {"filter": "order by metrics.score desc", "columns": ["metrics.score", "params.x"]}
    assert [run["run"] for run in first.json()["runs"]] == [f"{sweep}.0000"]
    assert first.json()["runs"][0]["values"] == {"metrics.score": 0.5}
    chosen = {"filter": view["filter"], "columns": ",".join(view["columns"])}
    headers = {"If-None-Match": first.headers["ETag"]}
    assert local.get(RUNS, params={"first_view": "true"}, headers=headers).status_code == 304
    assert local.get(RUNS, params=chosen, headers=headers).status_code == 304
    assert local.get(RUNS, headers=headers).status_code == 200


@pytest.mark.parametrize("beside", [{"filter": "status = finished"}, {"columns": "params.x"}])
def test_a_first_view_is_not_asked_for_beside_a_view(local: TestClient, beside: dict[str, str]) -> None:
    answer = local.get(RUNS, params={"first_view": "true", **beside})
    assert answer.status_code == 422
    assert "first_view = true is not accepted beside filter or columns" in answer.json()["detail"]


def test_a_token_of_a_project_sees_that_project(
    filled: Backend, guarded: TestClient, bearer: Callable[..., dict[str, str]]
) -> None:
    own = bearer("ada", scope="read", projects=["text"])
    assert ids(guarded.get(RUNS, headers=own).json()) == ["text/e", "text/d"]
    assert [
        group["key"]["project"]
        for group in guarded.get(f"{RUNS}/groups?by=project", headers=own).json()["groups"]
    ] == ["text"]
    assert guarded.get(f"{RUNS}/columns", headers=own).json()["metrics"] == [
        {"name": name, "count": 1, "type": "number"} for name in ("back", "loss")
    ]
    for path in ("/digits/a", "?project=digits", "/diff?run=text/d&run=digits/a"):
        assert guarded.get(f"{RUNS}{path}", headers=own).status_code == 404
    every = guarded.get(RUNS, headers=bearer("bob", scope="read"))
    assert guarded.get(RUNS, headers={**own, "If-None-Match": every.headers["ETag"]}).status_code == 200


def test_a_server_finds_runs_by_itself_and_its_thread_ends_with_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_refresher, "SHORTEST", 0.05)
    write_runs(Path(backend.store.root))
    with client_of(Settings(root=backend.store.root), f"{ADDRESS}") as client:
        wait_for(lambda: client.get(RUNS).json()["total"] == 5, 60, "the runs that were there")
        halving.init("digits", {}, backend.store.root, id="new", system_metrics=None).finish()
        wait_for(lambda: client.get(RUNS).json()["total"] == 6, 60, "a new run")
        assert any(thread.name == "halving-index" for thread in threading.enumerate())
    assert not any(thread.name == "halving-index" for thread in threading.enumerate())


def test_a_server_begins_the_days_retention_on_each_new_day(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daily_retention, "LOOK_SECONDS", 0.05)
    days = lambda: backend.store.names("retention/begun")  # noqa: E731
    with client_of(Settings(root=backend.store.root)):
        wait_for(lambda: len(days()) == 1, 60, "the first day")
        backend.store.delete_below("retention/begun")
        wait_for(lambda: len(days()) == 1, 60, "another one")


def test_a_store_that_cannot_be_listed_stops_neither_the_server_nor_its_refresher(
    filled: Backend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(index_refresher, "SHORTEST", 0.05)
    monkeypatch.setattr(index_refresher, "_FIRST_PAUSE", 0.05)
    runs = Path(filled.store.root) / "runs"
    runs.rename(runs.with_name("away"))
    runs.write_text("no folder")
    with client_of(Settings(root=filled.store.root)) as client:
        wait_for(lambda: "the index of runs was not refreshed" in caplog.text, 60, "a failure")
        assert client.get(RUNS).json()["total"] == 5
        runs.unlink()
        runs.with_name("away").rename(runs)
        halving.init("digits", {}, filled.store.root, id="new", system_metrics=None).finish()
        wait_for(lambda: client.get(RUNS).json()["total"] == 6, 60, "a new run")


def test_the_schema_has_the_routes_with_examples(local: TestClient) -> None:
    paths = local.get("/api/v1/openapi.json").json()["paths"]
    for path in ("", "/groups", "/columns", "/diff", "/{project}/{run}"):
        assert paths[f"{RUNS}{path}"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert "examples" in json.dumps(paths[RUNS]["get"]["parameters"])


def test_a_trial_that_never_goes_on_is_stopped_by_itself_and_beside_others(
    backend: Backend, local: TestClient, small_spec: Callable[..., SweepSpec]
) -> None:
    sweep = paused_trials(backend, small_spec(), 2)

    def statuses() -> set[str]:
        compared = local.get(f"{RUNS}/diff", params={"run": ["digits/r0", "digits/r1"]}).json()["runs"]
        return {local.get(f"{RUNS}/digits/r0").json()["status"], *(run["status"] for run in compared)}

    assert statuses() == {"paused"}
    with backend.catalog.write() as session:
        session.get_one(SweepRow, sweep).status = "finished"
    assert statuses() == {"stopped"}
