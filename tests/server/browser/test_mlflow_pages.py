"""The pages of what MLflow's clients log: registered versions, and the links that clients print."""

import pytest
from playwright.sync_api import Page, expect

from tests.server import plain_http
from tests.server.browser.conftest import Served, can_be_read
from tests.waiting import wait_for

pytestmark = pytest.mark.usefixtures("mlflow_grammar")


def test_a_version_that_a_client_registered_is_shown_with_its_run_and_promoted(
    page: Page, served: Served
) -> None:
    def api(endpoint: str, **fields: object) -> dict[str, dict[str, str]]:
        answer = plain_http.post(f"{served.url}/api/2.0/mlflow/{endpoint}", json=fields)
        answer.raise_for_status()
        content: dict[str, dict[str, str]] = answer.json()
        return content

    run = plain_http.post(f"{served.url}/api/2.0/mlflow/runs/create", json={"experiment_id": "0"}).json()[
        "run"
    ]["info"]["run_id"]
    source = f"mlflow-artifacts:/0/{run}/artifacts/model"
    api(
        "registered-models/create",
        name="A client's",
        description="what it is for",
        tags=[{"key": "team", "value": "vision"}],
    )
    api("registered-models/create", name="empty")
    for number in (1, 2):
        api(
            "model-versions/create",
            name="A client's",
            source=source,
            run_id=run,
            description=f"version {number}",
        )
    api("registered-models/alias", name="A client's", alias="best", version="2")

    page.goto(f"{served.url}/models")
    expect(page.get_by_role("row", name="empty")).to_contain_text("none")
    page.get_by_role("link", name="A client's").click()
    expect(page.get_by_role("heading", level=1, name="A client's")).to_be_visible()
    expect(page.get_by_text("what it is for")).to_be_visible()
    expect(page.get_by_text("vision")).to_be_visible()
    versions = page.get_by_role("region", name="Versions, the newest first")
    first = versions.get_by_role("row", name="1.0.0")
    second = versions.get_by_role("row", name="1.0.1")
    expect(second).to_contain_text("@best")
    first.get_by_role("link", name="1.0.0").click()
    expect(page.get_by_text("version 1", exact=True)).to_be_visible()
    expect(page.get_by_text("models:/A client's/1")).to_be_visible()
    page.get_by_role("button", name="Promote: A client's 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Promote", exact=True).click()
    expect(first).to_contain_text("champion")
    can_be_read(page)
    query = {"name": "A client's", "alias": "champion"}
    champion = plain_http.get(f"{served.url}/api/2.0/mlflow/registered-models/alias", params=query).json()
    assert champion["model_version"]["version"] == "1"
    page.get_by_role("link", name=f"Default/{run}").click()
    expect(page.get_by_text("1.0.0", exact=True)).to_be_visible()
    page.goto(f"{served.url}/models")
    expect(page.get_by_role("row", name="A client's")).to_contain_text("a client")
    can_be_read(page)


def test_the_links_that_mlflows_clients_print_lead_to_what_they_mean(page: Page, served: Served) -> None:
    below = f"{served.url}/api/2.0/mlflow"
    experiment = plain_http.post(f"{below}/experiments/create", json={"name": "Some digits"}).json()[
        "experiment_id"
    ]
    run = plain_http.post(f"{below}/runs/create", json={"experiment_id": experiment}).json()["run"]["info"][
        "run_id"
    ]
    plain_http.post(f"{below}/registered-models/create", json={"name": "Linked"})
    plain_http.post(f"{below}/model-versions/create", json={"name": "Linked", "source": "s3://bucket/net"})
    wait_for(
        lambda: plain_http.get(f"{served.url}/api/v1/runs", params={"filter": f"run = {run}"}).json()["runs"],
        30,
        "the run is in the index",
    )
    page.goto(f"{served.url}/#/experiments/{experiment}/runs/{run}")
    page.wait_for_url(f"{served.url}/runs/Some-digits/{run}")
    page.goto(f"{served.url}/#/experiments/{experiment}")
    expect(page.get_by_label("Filter of runs")).to_have_value("project = Some-digits")
    page.goto(f"{served.url}/#/models/Linked/versions/1")
    page.wait_for_url(f"{served.url}/models/Linked?version=1.0.0")
    page.goto(f"{served.url}/#/experiments/999")
    page.wait_for_url(f"{served.url}/")
