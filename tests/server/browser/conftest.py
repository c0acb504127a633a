"""A real server on a real store, and Debian's Chromium on its page.

A test fails on whatever the page's console calls an error.
"""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, Response, expect

from halving.records.run_record import RunRecords, SavedCheckpoint
from resources.backend import Backend
from resources.sweep_spec import parse_spec
from server.app import create_app
from server.settings import Settings
from server.vendor import MODULES
from tests.backends import SMALL
from tests.browser import CHROMIUM, MISSING, chromium, errors_of
from tests.ports import free_port
from tests.searches import search
from tests.server.browser.demo import RUNS, train
from tests.server.registry import promote_winner, score
from tests.waiting import wait_for

AXE = MODULES / "axe-core" / "axe.min.js"
# two cores run other tests beside this one, and the index is refreshed more seldom the longer a look takes
_PATIENCE_MS = 60_000


expect.set_options(timeout=_PATIENCE_MS)


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a module's tests in one worker of xdist.

    Its browser and its server, which cost more than most tests, start only there.
    """
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


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
    # Without a configuration of logs: one closes all handlers, and absl, which Keras imports, closes with its
    # handler pytest's own stderr.
    config = uvicorn.Config(
        app, host="127.0.0.1", port=port, log_config=None, log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive(), 60, "the server listens", every=0.02)
        assert server.started, "the server did not start"
        yield f"http://127.0.0.1:{port}"
        assert thread.is_alive(), "the server ended by itself"
    finally:
        app.state.streams.end()
        server.should_exit = True
        thread.join(30)


def fill(backend: Backend) -> tuple[str, str]:
    """A finished sweep with curves, report and model, and one in the middle of its search."""
    spec = parse_spec({**SMALL, "name": "small", "max_trials": 3})
    finished = promote_winner(backend, spec, curves=True).sweep
    return finished, searching(backend, "going")


def searching(backend: Backend, name: str) -> str:
    """A sweep in the middle of its search: one of its trials is being trained.

    One of the same name would go on with it.
    """
    return search(backend, parse_spec({**SMALL, "name": name}), score, limit=6)


def add_checkpoint(backend: Backend, project: str, run: str, *, epoch: int) -> None:
    """As if the run had saved one."""
    saved = SavedCheckpoint(epoch, 1, backend.store.put_blob(f"{run} {epoch}".encode()), {"score": 0.5})
    RunRecords(backend.store, project, run).add_checkpoint(saved)


def after(page: Page, answer: Response) -> None:
    """Wait until the page shows what an answer says, where nothing that is seen tells that it has come."""
    answer.finished()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def can_be_read(page: Page) -> None:
    """Check with axe, and that nothing is wider than the screen, on phone and desk, in light and dark."""
    if not AXE.exists():
        # Where npm is, as in CI, axe must be: its absence may not pass for a page that everybody can read.
        (pytest.fail if shutil.which("npm") else pytest.skip)(
            "needs axe-core: make check-page (and for that npm: apt-get install npm)"
        )
    page.evaluate(AXE.read_text())
    for width, height in ((390, 844), (1280, 900)):
        page.set_viewport_size({"width": width, "height": height})
        fits(page, width)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            rules = {"runOnly": ["color-contrast"]} if theme == "dark" else {}  # nothing but colours differs
            violations = page.evaluate(
                "(rules) => axe.run(document, {resultTypes: ['violations'], ...rules})", rules
            )["violations"]
            assert not [(violation["id"], violation["nodes"][0]["html"]) for violation in violations], (
                page.url,
                width,
                theme,
            )


def fits(page: Page, width: int) -> None:
    """Nothing is wider than the screen, once charts have taken its width."""
    wait_for(
        lambda: page.evaluate("document.documentElement.scrollWidth") <= width,
        60,
        f"{page.url} to fit into {width} pixels",
    )


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A filled store to be copied, with its sweeps; filling one takes longer than most tests."""
    root = tmp_path_factory.mktemp("filled") / "root"
    backend = Backend(root=str(root))
    finished, going = fill(backend)
    backend.catalog.close()
    return root, finished, going


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, filled: tuple[Path, str, str]) -> Iterator[Served]:
    """A server for this machine alone, which asks for no token.

    A test that changes what others look at makes its own.
    """
    with _serve_runs(tmp_path_factory.mktemp("served"), *filled) as served:
        yield served


@pytest.fixture(scope="module")
def guarded_server(
    tmp_path_factory: pytest.TempPathFactory, filled: tuple[Path, str, str]
) -> Iterator[Served]:
    """A server that asks for tokens."""
    with _serve_runs(tmp_path_factory.mktemp("guarded"), *filled, tokens=True) as served:
        yield served


@contextmanager
def _serve_runs(
    folder: Path, root: Path, finished: str, going: str, *, tokens: bool = False
) -> Iterator[Served]:
    backend = Backend(root=str(shutil.copytree(root, folder / "root")))
    with serving(Settings(root=backend.store.root, tokens=tokens)) as url:
        yield Served(url, backend, finished, going)
    backend.catalog.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        pytest.skip(MISSING)
    with chromium() as browser:
        yield browser


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that has been nowhere yet."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(_PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def expected_errors() -> list[str]:
    """Parts of console messages that a test provokes on purpose; it appends them."""
    return []


@pytest.fixture
def page(context: BrowserContext, expected_errors: list[str]) -> Iterator[Page]:
    """A tab; the test fails if its console has an error that the test does not expect."""
    page = context.new_page()
    errors = errors_of(page)
    yield page
    page.close()
    assert not [error for error in errors if not any(part in error for part in expected_errors)]


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of :func:`demo_root`, to be copied: to train its runs takes longer than most tests."""
    root = tmp_path_factory.mktemp("trained") / "root"
    for number in range(RUNS):
        train(str(root), number, optimizer="sgd" if number % 2 else "adam")
    return root


@pytest.fixture
def demo_root(backend: Backend, trained: Path) -> str:
    """A store with the runs 0 to 5 of :mod:`tests.server.browser.demo`, the even ones by adam."""
    shutil.copytree(trained, backend.store.root, dirs_exist_ok=True)
    return backend.store.root


@pytest.fixture
def demo_url(demo_root: str) -> Iterator[str]:
    with serving(Settings(root=demo_root)) as url:
        yield url
