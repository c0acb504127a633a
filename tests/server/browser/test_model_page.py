"""The page of a model whose versions clients registered."""

import httpx2
from playwright.sync_api import Page, expect

from tests.server.browser.conftest import Served, can_be_read


def test_a_version_that_a_client_registered_is_shown_with_its_run_and_promoted(page: Page, served: Served) -> None:
    def api(endpoint: str, **fields: object) -> dict[str, dict[str, str]]:
        answer = httpx2.post(f"{served.url}/api/2.0/mlflow/{endpoint}", json=fields)
        answer.raise_for_status()
        found: dict[str, dict[str, str]] = answer.json()
        return found

    run = httpx2.post(f"{served.url}/api/2.0/mlflow/runs/create", json={"experiment_id": "0"}).json()["run"]["info"]["run_id"]
    source = f"mlflow-artifacts:/0/{run}/artifacts/model"
    api("registered-models/create", name="A client's", description="what it is for", tags=[{"key": "team", "value": "vision"}])
    api("registered-models/create", name="empty")
    for number in (1, 2):
        api("model-versions/create", name="A client's", source=source, run_id=run, description=f"version {number}")
    api("registered-models/alias", name="A client's", alias="best", version="2")

    page.goto(f"{served.url}/models")
    expect(page.get_by_role("row", name="empty")).to_contain_text("none")
    page.get_by_role("link", name="A client's").click()
    expect(page.get_by_role("heading", level=1, name="A client's")).to_be_visible()
    expect(page.get_by_text("what it is for")).to_be_visible()
    expect(page.get_by_text("vision")).to_be_visible()
    first, second = page.get_by_role("row", name="1.0.0"), page.get_by_role("row", name="1.0.1")
    expect(second).to_contain_text("@best")
    first.get_by_role("link", name="1.0.0").click()
    expect(page.get_by_text("version 1", exact=True)).to_be_visible()
    expect(page.get_by_text("models:/A client's/1")).to_be_visible()
    page.get_by_role("button", name="Promote: A client's 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Promote", exact=True).click()
    expect(first).to_contain_text("champion")
    can_be_read(page)
    asked = {"name": "A client's", "alias": "champion"}
    found = httpx2.get(f"{served.url}/api/2.0/mlflow/registered-models/alias", params=asked).json()
    assert found["model_version"]["version"] == "1"
    page.get_by_role("link", name=f"Default/{run}").click()
    expect(page.get_by_text("1.0.0", exact=True)).to_be_visible()
    page.goto(f"{served.url}/models")
    expect(page.get_by_role("row", name="A client's")).to_contain_text("a client")
    can_be_read(page)
