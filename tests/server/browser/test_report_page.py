"""A report in a real browser: it draws its figures in a sandbox that reaches no origin and no network."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from resources.backend import Backend
from resources.evaluation.report import evaluate_sweep
from resources.sweep_spec import SweepSpec
from server.settings import Settings
from tests.browser import errors_of
from tests.searches import search
from tests.server.browser.conftest import after, serving
from tests.server.registry import promote_winner, score
from tests.waiting import wait_for


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """A server on an empty store."""
    with serving(Settings(root=backend.store.root)) as url:
        yield url


@pytest.mark.smoke
def test_a_report_draws_its_figures_in_its_sandbox(
    backend: Backend, small_spec: Callable[..., SweepSpec], url: str, context: BrowserContext
) -> None:
    page = context.new_page()
    sweep = search(backend, small_spec(predictor="tests.trainables:predict_badly"), score)
    evaluate_sweep(backend.store, backend.catalog, sweep)
    said = errors_of(page)
    page.goto(f"{url}/api/v1/reports/{sweep}/page")
    page.wait_for_selector(".plot svg.main-svg")
    assert page.locator(".plot svg.main-svg").count() >= 3
    assert page.evaluate("self.origin") == "null"
    assert said == []


_BYTES = (
    "performance.getEntriesByType('resource').reduce((sum, { decodedBodySize }) => sum + decodedBodySize, 0)"
)


def test_a_sweeps_page_fetches_plotly_only_when_its_report_is_opened(
    backend: Backend, small_spec: Callable[..., SweepSpec], url: str, page: Page
) -> None:
    sweep = search(backend, small_spec(predictor="tests.trainables:predict_badly"), score)
    evaluate_sweep(backend.store, backend.catalog, sweep)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    with page.expect_response("**/api/v1/session") as session:
        page.goto(f"{url}/sweeps/{sweep}")
    report = page.get_by_text("The report with its figures")
    expect(report).to_be_visible()
    after(page, session.value)
    assert len(page.frames) == 1
    assert not [address for address in requests if "/reports/" in address or "plotly" in address]
    assert page.evaluate(_BYTES) < 1_000_000, "Plotly has more than four million bytes"
    report.click()
    expect(page.frame_locator("iframe").locator(".plot svg.main-svg").first).to_be_visible()
    assert [address for address in requests if "/reports/" in address] == [
        f"{url}/api/v1/reports/{sweep}/page"
    ]


def test_a_script_in_a_report_reaches_nothing(
    backend: Backend, small_spec: Callable[..., SweepSpec], url: str, context: BrowserContext
) -> None:
    page = context.new_page()
    hostile = b"""<!doctype html><title>r</title><script>
      const tried = {};
      try { tried.cookie = document.cookie } catch (error) { tried.cookie = error.name }
      try { tried.storage = localStorage.length } catch (error) { tried.storage = error.name }
      const done = found => { tried.fetch = found; window.tried = tried };
      fetch("/api/v1/hpo/studies/x/pause", {method: "POST"})
        .then(() => done("sent"), error => done(error.name))
    </script><img src="/icon.svg"><form action="/api/v1/session" method="post"><button>go</button></form>"""
    version = promote_winner(backend, small_spec(max_trials=1), page=hostile)
    requests: list[str] = []
    page.on("requestfinished", lambda request: requests.append(request.url))
    address = f"{url}/api/v1/reports/{version.sweep}/page"
    page.goto(address)
    tried: Any = wait_for(lambda: page.evaluate("window.tried"), 60, "the script has tried everything")
    assert tried == {"cookie": "SecurityError", "storage": "SecurityError", "fetch": "TypeError"}
    page.click("button")
    assert requests == [address]
