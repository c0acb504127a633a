"""The page as a browser shows it: that it comes up, finds its way, and has no error in its console."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.server.browser.conftest import Served


@pytest.mark.smoke
def test_every_section_opens(page: Page, served: Served) -> None:
    page.goto(served.url)
    sections = page.get_by_role("navigation", name="Pages")
    for name in ("Sweeps", "Models", "Datasets", "Compare"):
        sections.get_by_role("link", name=name).click()
        expect(sections.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
        expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()


def test_the_theme_that_is_chosen_is_kept_and_the_other_one_is_the_systems_again(page: Page, served: Served) -> None:
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


def test_a_page_that_breaks_says_so_and_leaves_the_others(page: Page, served: Served, expected_errors: list[str]) -> None:
    expected_errors.append("TypeError")
    page.route("**/api/v1/models", lambda route: route.fulfill(json={"models": [{"model": "odd"}]}))
    page.goto(f"{served.url}/models")
    expect(page.get_by_role("heading", level=1, name="This page broke")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("The page made an error")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Sweeps").click()
    expect(page.get_by_role("link", name=served.finished)).to_be_visible()


def test_a_page_whose_modules_did_not_come_says_so_and_is_loaded_again(page: Page, served: Served, expected_errors: list[str]) -> None:
    expected_errors.append("ERR_FAILED")
    page.route("**/app.js", lambda route: route.abort())
    page.goto(f"{served.url}/sweeps")
    expect(page.get_by_role("alert")).to_contain_text("could not be loaded")
    page.unroute("**/app.js")
    expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()
