"""Saved views and view-only links in a browser: saved, opened by the keyboard, sent, opened, revoked."""

from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

import halving
from resources.views.saved_views import save_view
from resources.views.view_query import NAMES
from server.identity.tokens import create_token
from tests.server import plain_http
from tests.server.browser.conftest import Served, can_be_read
from tests.server.browser.demo import expect_text

VIEW = "/?filter=run+like+'viewed%25'&columns=params.x&logy=1"
FILTER = "run like 'viewed%'"


@pytest.fixture(scope="module", autouse=True)
def viewed_runs(served: Served) -> None:
    """Two runs that the view shows."""
    for name in ("viewed-a", "viewed-b"):
        root = served.backend.store.root
        with halving.init("small", {"x": 1.0}, root=root, id=name, system_metrics=None) as run:
            run.log({"loss": 0.5}, step=1)


def open_menu(page: Page) -> Locator:
    page.get_by_role("button", name="Views", exact=True).click()
    return page.get_by_role("dialog", name="Views")


def saved(served: Served) -> dict[str, str]:
    """The queries of the saved views by their names."""
    views = plain_http.get(f"{served.url}/api/v1/views").json()["views"]
    return {view["name"]: view["query"] for view in views}


def test_the_names_that_are_saved_are_those_that_the_server_knows(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/login")
    assert set(page.evaluate("import('/compare/saved-views.js').then((module) => module.NAMES)")) == set(
        NAMES
    )


def test_a_view_is_saved_by_name_and_opened_by_the_keyboard(page: Page, served: Served) -> None:
    page.goto(f"{served.url}{VIEW}&utm_source=mail")
    expect_text(page, "2 shown of 2 runs")
    open_menu(page).get_by_role("button", name="Save view…").click()
    page.get_by_role("textbox", name="Name").fill("by x")
    can_be_read(page)
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert saved(served)["by x"] == VIEW.removeprefix("/?")
    page.goto(f"{served.url}/?tab=diff")
    page.get_by_role("button", name="Views", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="by x", exact=True)).to_be_focused()
    can_be_read(page)
    page.keyboard.press("Enter")
    expect(page.get_by_label("Filter of runs")).to_have_value(FILTER)
    open_menu(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Views", exact=True)).to_be_focused()


def test_what_another_one_has_saved_meanwhile_is_not_lost_unasked(
    page: Page, served: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("409")
    page.goto(f"{served.url}{VIEW}")
    open_menu(page).get_by_role("button", name="Save view…").click()
    page.get_by_role("textbox", name="Name").fill("both")
    with served.backend.catalog.write() as session:
        save_view(session, "small", "both", "tab=media", revision=None, by="ben")
    page.get_by_label("Project", exact=True).fill("small")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("Ben has saved a view of this name")).to_be_visible()
    assert saved(served)["both"] == "tab=media"
    page.get_by_role("button", name="Replace it").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert saved(served)["both"] == VIEW.removeprefix("/?")
    open_menu(page).get_by_role("button", name="Delete the view both").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "both" not in saved(served)


@pytest.mark.parametrize("kind", ["view", "run", "sweep", "report"])
def test_a_link_is_made_opened_elsewhere_and_revoked(
    page: Page, served: Served, browser: Browser, kind: str
) -> None:
    address, heading = {
        "view": (VIEW, FILTER),
        "run": (f"/runs/small/{served.finished}.0000", f"small/{served.finished}.0000"),
        "sweep": (f"/sweeps/{served.finished}", served.finished),
        "report": (f"/sweeps/{served.finished}", ""),
    }[kind]
    page.goto(f"{served.url}{address}")
    if kind == "view":
        expect_text(page, "2 shown of 2 runs")
        open_menu(page)
    page.get_by_role("button", name="View-only link…").click()
    if kind == "report":
        page.get_by_label("It shows").select_option("its report")
    page.get_by_label("Note, for those who list links").fill(f"a {kind}")
    page.get_by_role("button", name="Make the link").click()
    link = page.locator(".made-link code").inner_text()
    can_be_read(page)
    with browser.new_context() as context:
        guest = context.new_page()
        requests: list[str] = []
        guest.on("request", lambda request: requests.append(request.url))
        shows(guest, link, heading)
        assert requests == [link], "it asks for nothing else"
        assert context.cookies() == []
        page.get_by_role("listitem").filter(has_text=f"A {kind}.").get_by_role(
            "button", name="Revoke"
        ).click()
        expect(page.locator(".made-link")).to_have_count(0)
        assert guest.goto(link).status == 404  # type: ignore[union-attr]


def shows(guest: Page, link: str, heading: str) -> Any:
    """Open a link, and wait until its page is drawn; a report's is a text of its own."""
    problems: list[str] = []
    guest.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    guest.on("pageerror", lambda error: problems.append(str(error)))
    guest.goto(link)
    if heading:
        expect(guest.get_by_role("heading", level=1)).to_have_text(heading)
        expect(guest.get_by_text("view-only link")).to_be_visible()
    else:
        expect(guest.get_by_text("report")).to_be_visible()
    assert problems == []


def test_who_may_only_read_opens_views_and_makes_no_links(
    page: Page, guarded_server: Served, expected_errors: list[str]
) -> None:
    expected_errors.append("401")
    served = guarded_server
    with served.backend.catalog.write() as session:
        save_view(session, "small", "theirs", "tab=diff", revision=None, by="ben")
    page.goto(f"{served.url}/login")
    page.get_by_label("Token", exact=True).fill(create_token(served.backend.catalog, "reader"))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Views", exact=True)).to_be_visible()
    menu = open_menu(page)
    expect(menu.get_by_role("button", name="theirs", exact=True)).to_be_visible()
    expect(menu.get_by_role("button")).to_have_count(1)
    page.goto(f"{served.url}/sweeps/{served.finished}")
    expect(page.get_by_role("link", name="Report ↗")).to_be_visible()
    expect(page.get_by_role("button", name="View-only link…")).to_have_count(0)
