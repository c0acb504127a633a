"""Reports over HTTP, and the gates that are judged by them."""

from collections.abc import Callable

from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.sweep_spec import SweepSpec
from tests.searches import search
from tests.server.registry import promote_winner, score

Spec = Callable[..., SweepSpec]


def test_a_report_has_its_scores_and_its_page_which_reaches_nothing(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    version = promote_winner(either_backend, small_spec(max_trials=1), page=b"<script>1</script>")
    report = client.get(f"/reports/{version.sweep}").json()
    assert report["metrics"] == {"accuracy": 0.9, "loss": None}
    page = client.get(f"/reports/{version.sweep}/page")
    assert page.content == b"<script>1</script>"
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = page.headers["Content-Security-Policy"].split("; ")
    assert {"sandbox allow-scripts", "default-src 'none'"} <= set(policy)
    assert not [part for part in policy if "allow-same-origin" in part or part.startswith("connect-src")]
    assert client.get(f"/hpo/studies/{version.sweep}").json()["model"]["version"] == version.version
    assert client.get("/reports/nothing/page").status_code == 404


def test_reports_are_listed_the_newest_first(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    old, new = (
        promote_winner(either_backend, small_spec(name=name, max_trials=1)).sweep
        for name in ("zeta", "alpha")
    )
    listed = client.get("/reports").json()["reports"]
    assert [(report["sweep"], report["project"]) for report in listed] == [(new, "alpha"), (old, "zeta")]
    report = client.get(f"/reports/{old}").json()
    assert listed[1] == {
        "project": "zeta",
        **{name: report[name] for name in ("sweep", "metrics", "digest", "created_at", "page")},
    }
    assert client.get(listed[1]["page"].removeprefix("/api/v1")).content == b"<p>report"
    assert client.get("/reports", params={"limit": 1}).json()["reports"] == listed[:1]
    assert client.get("/reports", params={"project": "zeta"}).json()["reports"] == listed[1:]


def test_the_gates_of_a_version_are_judged_by_its_report(
    client: TestClient, either_backend: Backend, small_spec: Spec
) -> None:
    version = promote_winner(either_backend, small_spec(max_trials=1))
    gates = {gate["name"]: gate for gate in client.get(f"/reports/{version.sweep}/gates").json()["gates"]}
    assert not gates["finite_metrics"]["passed"]
    assert "loss" in gates["finite_metrics"]["reason"]
    assert "run record" in gates["lineage"]["reason"]  # the test trained nothing
    assert either_backend.store.root not in gates["lineage"]["reason"]
    assert gates["non_inferior"]["outcome"] == "pass"
    searching = search(either_backend, small_spec(name="other", max_trials=3), score, limit=2)
    assert client.get(f"/reports/{searching}/gates").status_code == 404
