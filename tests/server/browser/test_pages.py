"""The pages of sweeps, models and runs in a browser: what they change, and that everybody can read them."""

import pytest
from playwright.sync_api import Page, expect

from halving.query.runs import read_run
from server.identity.tokens import create_token
from server.vendor import MODULES
from tests.server.browser.conftest import Served

AXE = MODULES / "axe-core" / "axe.min.js"


def test_a_sweep_is_paused_and_goes_on(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/sweeps/{served.searching}")
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("Paused: no trial starts until it is resumed.")).to_be_visible()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


def test_a_version_is_archived_and_taken_back(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/models/small")
    page.get_by_role("button", name="Archive: small 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Archive", exact=True).click()
    page.get_by_role("button", name="Roll back to it: small 1.0.0").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back", exact=True).click()
    expect(page.get_by_role("button", name="Archive: small 1.0.0")).to_be_visible()


def test_keys_open_the_help_and_sections(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/models")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keys")).to_be_hidden()
    page.keyboard.press("g")
    page.keyboard.press("s")
    expect(page.get_by_role("heading", level=1, name="Sweeps")).to_be_visible()


def test_every_page_can_be_read_by_everybody(page: Page, served: Served) -> None:
    if not AXE.exists():
        pytest.skip("needs axe-core: npm --prefix server ci")
    run = f"/runs/small/{served.finished}.0000"
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/", run, "/sweeps", f"/sweeps/{served.finished}", "/models", "/models/small", "/datasets", "/datasets/points", "/login"):
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.goto(served.url + path, wait_until="load")
            expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
            page.evaluate(AXE.read_text())
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            assert not [(one["id"], one["nodes"][0]["html"]) for one in found], (path, theme)


def test_a_run_has_what_the_command_shows(page: Page, served: Served) -> None:
    run = read_run(served.backend.store, "small", f"{served.finished}.0000")
    page.goto(f"{served.url}/runs/small/{run.run}")
    main = page.locator("main")
    expect(main.get_by_role("heading", level=1)).to_have_text(run.run)
    for shown in (*run.params, "score", f"halving show small/{run.run}"):
        expect(main.get_by_text(shown, exact=True).first).to_be_visible()


def test_who_has_a_token_logs_in_and_comes_back(page: Page, guarded_server: Served, expected_errors: list[str]) -> None:
    expected_errors.append("401")
    page.goto(f"{guarded_server.url}/sweeps")
    page.get_by_label("Token", exact=True).fill("hlv_wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This token does not hold")
    page.get_by_label("Token", exact=True).fill(create_token(guarded_server.backend.catalog, "ada"))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1, name="Sweeps")).to_be_visible()
    expect(page.get_by_text("ada")).to_be_visible()
