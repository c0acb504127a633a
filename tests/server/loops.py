"""Studies for external loops, and such loops."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

from resources.backend import Backend
from resources.scheduling.sweeps import open_sweep
from resources.sweep_spec import parse_spec
from tests.trainables import score
from tests.waiting import wait_for

Small = Callable[..., dict[str, Any]]


def open_study(client: TestClient, spec: dict[str, Any]) -> str:
    answer = client.post("/hpo/studies", params={"driver": "api"}, json=spec)
    assert answer.status_code == 202, answer.text
    assert answer.json()["status"] == "done"
    return str(answer.json()["study"])


def ask(client: TestClient, study: str, **options: Any) -> dict[str, Any]:
    """The next trial, once there is one."""
    answer = wait_for(lambda: _check_ask(client.post(f"/hpo/studies/{study}/ask", **options)), 60, "a trial")
    return dict(answer.json())


def _check_ask(answer: Any) -> Any:
    assert answer.status_code in (200, 204), answer.text
    return answer if answer.status_code == 200 else None


def tell(
    client: TestClient, study: str, assignment: dict[str, Any], epoch: int, value: float
) -> dict[str, Any]:
    body = {"attempt": assignment["attempt"], "epoch": epoch, "values": {"score": value}}
    answer = client.post(f"/hpo/studies/{study}/trials/{assignment['trial']}/tell", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def drive(client: TestClient, study: str) -> None:
    """A loop as a user would write it, to the study's end."""
    while (answer := client.post(f"/hpo/studies/{study}/ask")).status_code != 410:
        if answer.status_code == 204:
            continue
        assignment = answer.json()
        verdict = {"decision": "continue", "epochs": assignment["epochs"]}
        while verdict["decision"] == "continue":
            verdict = tell(
                client,
                study,
                assignment,
                verdict["epochs"],
                score(assignment["params"]["x"], verdict["epochs"]),
            )


def open_for_loops(backend: Backend, spec: dict[str, Any]) -> str:
    checked = parse_spec(spec, trains=False)
    return open_sweep(backend.catalog, checked, str(checked.snapshot), driver="api", commit=None).id
