"""A report in a real browser: it draws its figures in its sandbox, and what it holds reaches neither this origin nor a network."""

import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Page, sync_playwright

from resources.backend import Backend
from resources.evaluation.report import evaluate_sweep
from resources.sweep_spec import SweepSpec
from server.app import create_app
from server.settings import Settings
from tests.ports import free_port
from tests.searches import search
from tests.server.registry import promoted, score
from tests.waiting import wait_for

CHROMIUM = shutil.which("chromium")
pytestmark = [pytest.mark.service, pytest.mark.skipif(not CHROMIUM, reason="needs a browser: apt-get install chromium")]


@pytest.fixture
def url(backend: Backend) -> Iterator[str]:
    """A server on a port."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(create_app(Settings(root=backend.store.root, port=port)), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_for(lambda: server.started, 30, "the server")
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture
def browser() -> Iterator[Page]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium.new_page()
        chromium.close()


def test_a_report_draws_its_figures_in_its_sandbox(backend: Backend, small_spec: Callable[..., SweepSpec], url: str, browser: Page) -> None:
    sweep = search(backend, small_spec(predictor="tests.trainables:predict_badly"), score)
    evaluate_sweep(backend.store, backend.catalog, sweep)
    said: list[str] = []
    browser.on("pageerror", lambda error: said.append(str(error)))
    browser.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    browser.goto(f"{url}/api/v1/reports/{sweep}/page")
    browser.wait_for_selector(".plot svg.main-svg")
    assert browser.locator(".plot svg.main-svg").count() >= 3
    assert browser.evaluate("self.origin") == "null"
    assert said == []


def test_a_script_in_a_report_reaches_nothing(backend: Backend, small_spec: Callable[..., SweepSpec], url: str, browser: Page) -> None:
    hostile = b"""<!doctype html><title>r</title><script>
      const tried = {};
      try { tried.cookie = document.cookie } catch (error) { tried.cookie = error.name }
      try { tried.storage = localStorage.length } catch (error) { tried.storage = error.name }
      const done = found => { tried.fetch = found; window.tried = tried };
      fetch("/api/v1/hpo/studies/x/pause", {method: "POST"}).then(() => done("sent"), error => done(error.name))
    </script><img src="/icon.svg"><form action="/api/v1/session" method="post"><button>go</button></form>"""
    version = promoted(backend, small_spec(max_trials=1), page=hostile)
    asked: list[str] = []
    browser.on("requestfinished", lambda request: asked.append(request.url))
    page = f"{url}/api/v1/reports/{version.sweep}/page"
    browser.goto(page)
    tried: Any = browser.wait_for_function("window.tried").json_value()
    assert tried == {"cookie": "SecurityError", "storage": "SecurityError", "fetch": "TypeError"}
    browser.click("button")
    assert asked == [page]
