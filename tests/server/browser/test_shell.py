"""The page as a browser shows it: that it comes up, finds its way, and has no error in its console."""

from playwright.sync_api import Page, expect

from tests.server.browser.conftest import Served


def test_every_section_opens(page: Page, served: Served) -> None:
    page.goto(served.url)
    sections = page.get_by_role("navigation", name="Pages")
    for name in ("Sweeps", "Models", "Datasets", "Compare"):
        sections.get_by_role("link", name=name).click()
        expect(sections.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
        expect(page.locator("main").get_by_role("heading", level=1)).to_be_visible()
