"""A renamed project over HTTP.

Its earlier sweeps, reports and runs are its own by each name, whichever of them a token names.
"""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from resources.analysis.run_index import Refresher
from resources.backend import Backend
from resources.sweep_spec import SweepSpec
from resources.tenancy.projects import rename_project
from tests.indexed_runs import add_run
from tests.server.registry import promote_winner

API = "/api/v1"
Bearer = Callable[..., dict[str, str]]


@pytest.fixture
def sweep(backend: Backend, small_spec: Callable[..., SweepSpec]) -> str:
    """One with a report, of the project that is called ``sight`` by now."""
    sweep = promote_winner(backend, small_spec(project="vision", max_trials=2)).sweep
    assert sweep is not None
    add_run(backend.store, f"{sweep}.0000", {"x": 1}, project="vision", score=[1.0])
    rename_project(backend.catalog, "vision", "sight")
    return sweep


def test_all_is_seen_by_each_name_and_with_a_token_for_any(
    guarded: TestClient, backend: Backend, sweep: str, bearer: Bearer
) -> None:
    add_run(backend.store, "other", project="other", score=[1.0])
    Refresher(backend.store, backend.catalog).refresh()
    headers = {
        "of all": bearer("root", scope="admin"),
        "by the old name": bearer("old", scope="write", projects=["vision"]),
        "by the new name": bearer("new", scope="write", projects=["sight"]),
    }
    for whose, header in headers.items():
        for project in ("vision", "sight"):

            def ask(path: str, **query: str) -> Any:
                answer = guarded.get(f"{API}{path}", params=query, headers=header)  # noqa: B023
                assert answer.status_code == 200, (whose, project, answer.text)  # noqa: B023
                return answer.json()

            assert [study["id"] for study in ask("/hpo/studies", project=project)["studies"]] == [sweep], (
                whose,
                project,
            )
            assert [report["sweep"] for report in ask("/reports", project=project)["reports"]] == [sweep], (
                whose,
                project,
            )
            runs = ask("/runs", project=project)["runs"]
            assert [run["id"] for run in runs] == [f"vision/{sweep}.0000"], (whose, project)
            for chosen in (
                f"project = {project}",
                f"project in ({project}, nobody)",
                f"project != other and project = {project}",
            ):
                assert ask("/runs", filter=chosen)["runs"] == runs, (whose, chosen)
                assert ask("/runs/groups", by="project", filter=chosen)["groups"][0]["count"] == len(runs)
                assert ask("/runs/columns", filter=chosen)["params"]
            assert f"vision/{sweep}.0000" in str(ask("/curves", filter=f"project = {project}", key="score"))
        assert guarded.get(f"{API}/hpo/studies/{sweep}", headers=header).status_code == 200
        assert guarded.get(f"{API}/hpo/studies", headers=header).json()["studies"][0]["project"] == "vision"
        assert [row["name"] for row in guarded.get(f"{API}/datasets", headers=header).json()["datasets"]] == [
            "points"
        ]
    left = [
        guarded.get(f"{API}/runs", params={"filter": "project != sight"}, headers=header).json()
        for header in headers.values()
    ]
    assert [[run["id"] for run in row["runs"]] for row in left] == [["other/other"], [], []]


def test_a_rename_changes_the_answer_to_a_question_and_no_tokens(
    guarded: TestClient, backend: Backend, sweep: str, bearer: Bearer
) -> None:
    Refresher(backend.store, backend.catalog).refresh()
    header = bearer("root", scope="admin")
    question = {"filter": "project = later"}
    before = guarded.get(f"{API}/runs", params=question, headers=header)
    assert before.json()["runs"] == []
    rename_project(backend.catalog, "sight", "later")
    after = guarded.get(
        f"{API}/runs", params=question, headers={**header, "If-None-Match": before.headers["ETag"]}
    )
    assert [run["id"] for run in after.json()["runs"]] == [f"vision/{sweep}.0000"]
