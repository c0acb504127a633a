"""``make serve``, ``make dev`` and ``make vendor`` in the checkout, as a person gives them."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from server.vendor import MANIFEST, MODULES
from tests.backends import CHECKOUT
from tests.ports import free_port
from tests.server import plain_http
from tests.waiting import wait_for, working_in

pytestmark = pytest.mark.slow  # Dagster starts, and npm, which `make test` needs nothing of

_START_SECONDS = 240  # Dagster imports for half a minute where other tests run beside it
_END_SECONDS = 150  # Dagster gives its webserver and its daemon a minute each


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A store that no other process works in."""
    return str(tmp_path / "root")


@pytest.mark.timeout(900)
def test_make_serve_opens_the_page_until_it_is_interrupted(root: str) -> None:
    port = free_port()
    with _make(root, "serve", f"PORT={port}") as (made, log):
        _answers(made, log, f"http://127.0.0.1:{port}/api/v1/health")
        assert "<title>Halving</title>" in plain_http.get(f"http://127.0.0.1:{port}/").text
        assert f"http://127.0.0.1:{port}" in log.read_text()
        _interrupt(made, root, log)
    assert "Traceback" not in log.read_text()


@pytest.mark.timeout(900)
def test_make_dev_opens_dagster_beside_the_page_and_an_interrupt_ends_both(root: str) -> None:
    port = free_port()
    dagster = free_port()
    with _make(root, "dev", f"PORT={port}", f"DAGSTER_PORT={dagster}") as (made, log):
        session = _answers(made, log, f"http://127.0.0.1:{port}/api/v1/session")
        assert session.json()["dagster_url"] == f"http://127.0.0.1:{dagster}"
        assert "dagster_version" in _answers(made, log, f"http://127.0.0.1:{dagster}/server_info").json()
        wait_for(lambda: "sensor: launch_requested" in log.read_text(), _START_SECONDS, "the sensors run")
        _interrupt(made, root, log)


def test_make_vendor_gives_the_very_files_that_are_committed(copy: Path) -> None:
    vendored = _vendor_files(copy)
    assert len(vendored) > 10
    for name in vendored:
        if name != MANIFEST.name:
            (copy / "server/static/vendor" / name).write_text("changed by hand")
    done = _vendor(copy)
    assert done.returncode == 0, done.stderr
    assert _vendor_files(copy) == vendored


def test_make_vendor_refuses_another_file_under_the_same_version_and_copies_nothing(copy: Path) -> None:
    vendored = _vendor_files(copy)
    (copy / "server/node_modules/htm/dist/htm.module.js").write_text(
        "export default () => fetch('https://elsewhere.example')"
    )
    done = _vendor(copy)
    assert done.returncode != 0
    assert "dist/htm.module.js has the hash" in done.stderr
    assert _vendor_files(copy) == vendored


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of what ``make vendor`` needs of the checkout, whose own files other tests read meanwhile."""
    if not (MODULES / ".package-lock.json").exists():
        # Where npm is, as in CI, its packages must be: their absence may not pass for files that nobody
        # changed.
        (pytest.fail if shutil.which("npm") else pytest.skip)(
            "needs the page's libraries: make check-page (and for that npm: apt-get install npm)"
        )
    copy = tmp_path / "checkout"
    shutil.copytree(
        CHECKOUT / "server",
        copy / "server",
        ignore=shutil.ignore_patterns("__pycache__", ".bin", "*typescript", "axe-core"),
    )
    shutil.copy2(CHECKOUT / "Makefile", copy)
    # what is installed is what is pinned: npm need not fetch it again
    (copy / "server/node_modules/.package-lock.json").touch()
    return copy


def _vendor(copy: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["make", "vendor"],
        cwd=copy,
        env=_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _vendor_files(copy: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (copy / "server/static/vendor").iterdir()}


@contextmanager
def _make(root: str, target: str, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """``make TARGET`` on a store, in a terminal of its own, and the file of what it says.

    Nothing of it outlives the ``with`` block.
    """
    if subprocess.run(
        ["make", "--question", "install"], cwd=CHECKOUT, env=_environment(), capture_output=True, check=False
    ).returncode:
        pytest.skip("needs the checkout's own .venv: make install")
    log = Path(root).parent / "make.log"
    environment = {**_environment(), "HALVING_ROOT": root}
    with log.open("w") as out:
        made = subprocess.Popen(
            ["make", target, *arguments],
            cwd=CHECKOUT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield made, log
    finally:
        for process in working_in(root):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        made.wait()


def _environment() -> dict[str, str]:
    """This one, without what a ``make`` that runs the tests tells those that it runs."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in {"MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL"}
    }


def _answers(made: "subprocess.Popen[bytes]", log: Path, address: str) -> httpx2.Response:
    """The answer of an address, once it has one."""

    def ask() -> httpx2.Response | None:
        assert made.poll() is None, log.read_text()
        try:
            answer = plain_http.get(address)
        except httpx2.TransportError:
            return None
        return answer if answer.status_code == 200 else None

    content: Any = wait_for(ask, _START_SECONDS, f"an answer of {address}", every=0.2)
    return content


def _interrupt(made: "subprocess.Popen[bytes]", root: str, log: Path) -> None:
    """Ctrl-C, which a terminal sends to all that was started in it."""
    os.killpg(made.pid, signal.SIGINT)
    try:
        wait_for(lambda: made.poll() is not None, _END_SECONDS, "the end of make")
        wait_for(lambda: not working_in(root), 60, "the end of what make started")
    except TimeoutError as error:
        pytest.fail(f"{error}; these run: {_commands(root)}; they said: {log.read_text()}")


def _commands(root: str) -> list[str]:
    commands = []
    for process in working_in(root):
        with contextlib.suppress(OSError):
            commands.append(Path(f"/proc/{process}/cmdline").read_text().replace("\0", " "))
    return commands
