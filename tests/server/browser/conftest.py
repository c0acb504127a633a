"""A real server on a real store, and Debian's Chromium on its page. A test fails on whatever the page's console calls an error."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from resources.backend import Backend
from resources.sweep_spec import parse_spec
from server.app import create_app
from server.settings import Settings
from tests.backends import SMALL
from tests.ports import free_port
from tests.searches import search
from tests.server.registry import promoted, score
from tests.waiting import wait_for

CHROMIUM = Path("/usr/bin/chromium")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
_PATIENCE_MS = 20_000  # two cores run other tests beside this one


expect.set_options(timeout=_PATIENCE_MS)


@dataclass(frozen=True)
class Served:
    """A server that is up, and what is in its store.

    Attributes:
        finished: a sweep that has a report and a model's version, with the curves of its trials.
        searching: a sweep that is in the middle of its search.
    """

    url: str
    backend: Backend
    finished: str
    searching: str


@contextmanager
def serving(settings: Settings) -> Iterator[str]:
    """The address of a server in this process, on a port of its own, for the length of the ``with`` block."""
    port = free_port()
    app = create_app(settings)
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive(), 30, "the server listens", every=0.02)
        assert server.started, "the server did not start"
        yield f"http://127.0.0.1:{port}"
    finally:
        app.state.streams.end()
        server.should_exit = True
        thread.join(30)


def fill(backend: Backend) -> tuple[str, str]:
    """A finished sweep with curves, report and model, and one in the middle of its search."""
    spec = parse_spec({**SMALL, "name": "small"})
    finished = promoted(backend, spec, curves=True).sweep
    searching = search(backend, parse_spec({**SMALL, "name": "going"}), score, most=6, curves=True)
    return finished, searching


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A server for this machine alone, which asks for no token."""
    backend = Backend(root=str(tmp_path / "root"))
    finished, searching = fill(backend)
    with serving(Settings(root=backend.store.root)) as url:
        yield Served(url, backend, finished, searching)
    backend.catalog.close()


@pytest.fixture
def guarded_server(tmp_path: Path) -> Iterator[Served]:
    """A server that asks for tokens."""
    backend = Backend(root=str(tmp_path / "root"))
    finished, searching = fill(backend)
    with serving(Settings(root=backend.store.root, tokens=True)) as url:
        yield Served(url, backend, finished, searching)
    backend.catalog.close()


@pytest.fixture(scope="module")  # while it is open no other event loop can run in this thread
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip("needs Debian's browser: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that has been nowhere yet."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(_PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def expected_errors() -> list[str]:
    """Parts of messages that a test means to see in the console, such as the status that it provokes: it appends them."""
    return []


@pytest.fixture
def page(context: BrowserContext, expected_errors: list[str]) -> Iterator[Page]:
    """A tab; the test fails if its console has an error that the test does not expect."""
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(f"{message.text} ({message.location})") if message.type == "error" else None)
    yield page
    page.close()
    assert not [error for error in errors if not any(part in error for part in expected_errors)]
