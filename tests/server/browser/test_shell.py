"""The page as a browser shows it: that it comes up, finds its way, and has no error in its console."""

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from resources.backend import Backend
from server.identity.tokens import create_token
from server.settings import Settings
from tests.server import plain_http
from tests.server.browser.conftest import Served, serving
from tests.server.prefix_proxy import proxy_before
from tests.waiting import wait_for


@pytest.mark.smoke
def test_every_section_opens(page: Page, served: Served) -> None:
    page.goto(served.url)
    sections = page.get_by_role("navigation", name="Pages")
    for name in ("Sweeps", "Models", "Datasets", "Compare"):
        sections.get_by_role("link", name=name).click()
        expect(sections.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
        expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()


def test_the_theme_that_is_chosen_is_kept_and_the_other_one_is_the_systems_again(
    page: Page, served: Served
) -> None:
    page.emulate_media(color_scheme="light")
    page.goto(f"{served.url}/sweeps")
    light = _background(page)
    page.get_by_role("button", name="Use the dark theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    dark = _background(page)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    assert _background(page) == dark
    page.get_by_role("button", name="Use the light theme").click()
    expect(page.locator("html")).not_to_have_attribute("data-theme", re.compile(""))
    page.emulate_media(color_scheme="dark")
    expect(page.get_by_role("button", name="Use the light theme")).to_be_visible()
    assert _background(page) == dark


def _background(page: Page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_a_link_that_was_cut_in_the_middle_of_a_letter_is_said_to_lead_nowhere(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("404")
    page.goto(f"{served.url}/models/%E0%A4%A")
    expect(page.get_by_role("heading", level=1, name="Nothing is here")).to_be_visible()
    page.get_by_role("link", name="All runs").click()
    expect(page.locator("[data-run]").first).to_be_visible()


def test_a_page_that_breaks_says_so_and_leaves_the_others(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("TypeError")
    page.route("**/api/v1/models", lambda route: route.fulfill(json={"models": [{"model": "odd"}]}))
    page.goto(f"{served.url}/models")
    expect(page.get_by_role("heading", level=1, name="This page broke")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("The page made an error")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Sweeps").click()
    expect(page.get_by_role("link", name=served.finished)).to_be_visible()


def test_a_page_whose_modules_did_not_come_says_so_and_is_loaded_again(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("ERR_FAILED")
    page.route("**/app.js", lambda route: route.abort())
    page.goto(f"{served.url}/sweeps")
    expect(page.get_by_role("alert")).to_contain_text("could not be loaded")
    page.unroute("**/app.js")
    expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()


@pytest.mark.parametrize("strips", [True, False], ids=["stripped", "left"])
def test_below_a_path_the_page_finds_its_way_and_asks_for_nothing_beside_it(
    page: Page, filled: tuple[Path, str, str], tmp_path: Path, expected_errors: list[str], strips: bool
) -> None:
    root, finished, _ = filled
    backend = Backend(root=str(shutil.copytree(root, tmp_path / "root")))
    token = create_token(backend.catalog, "ada", scope="write")
    backend.catalog.close()
    expected_errors.append("401")  # before the login
    settings = Settings(
        root=backend.store.root, tokens=True, base_path="/user/ada/proxy/3001", dagster_url="/dagster"
    )
    with serving(settings) as address, proxy_before(address, settings.base_path, strips=strips) as proxy:
        page.goto(f"{proxy.url}/sweeps")
        expect(page).to_have_url(f"{proxy.url}/login?next=%2Fsweeps")
        page.get_by_role("textbox", name="Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page).to_have_url(f"{proxy.url}/sweeps")
        expect(page.get_by_role("link", name="Dagster", exact=False).first).to_have_attribute(
            "href", f"{proxy.host}/dagster"
        )
        page.get_by_role("link", name=finished).click()
        expect(page).to_have_url(f"{proxy.url}/sweeps/{finished}")
        expect(page.get_by_role("link", name="Report ↗")).to_have_attribute(
            "href", f"{proxy.base_path}/api/v1/reports/{finished}/page"
        )
        page.get_by_role("navigation", name="Pages").get_by_role("link", name="Compare").click()
        expect(page).to_have_url(f"{proxy.url}/")
        page.locator("[data-run] a").first.click()
        expect(page).to_have_url(re.compile(rf"{proxy.url}/runs/[^/]+/[^/]+"))
        expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()
        page.go_back()
        expect(page).to_have_url(f"{proxy.url}/")
        page.keyboard.press("g")
        page.keyboard.press("s")
        expect(page).to_have_url(f"{proxy.url}/sweeps")
        page.goto(proxy.url)  # without a slash at its end
        with page.expect_response(f"{proxy.url}/api/v1/curves"):
            expect(page.locator("[data-run]").first).to_be_visible()
        run = _of_a_client(proxy.url, token)
        for place, meant in (
            (f"experiments/0/runs/{run}", f"/runs/Default/{run}"),
            ("experiments/0", "/?filter=project+%3D+Default"),
        ):
            page.goto("about:blank")
            page.goto(f"{proxy.url}/#/{place}")  # as MLflow's clients print it
            expect(page).to_have_url(f"{proxy.url}{meant}")
        page.get_by_role("button", name="Log out").click()
        expect(page).to_have_url(re.compile(f"{proxy.url}/login"))
        assert proxy.strays == []


def _of_a_client(url: str, token: str) -> str:
    """The id of a run that a client of MLflow's has logged, once it is among the runs."""
    headers = {"Authorization": f"Bearer {token}"}
    created = plain_http.post(
        f"{url}/api/2.0/mlflow/runs/create", json={"experiment_id": "0"}, headers=headers
    ).json()
    run = str(created["run"]["info"]["run_id"])
    runs = f"{url}/api/v1/runs"
    wait_for(
        lambda: plain_http.get(runs, params={"filter": f"run = {run}"}, headers=headers).json()["runs"],
        60,
        "the run is in the index",
    )
    return run
