"""``halving serve`` and ``halving tokens`` as commands: when it starts, what it says, and how it ends."""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from urllib.error import HTTPError

import pytest
import uvicorn

from halving.cli.main import main
from halving.errors import InvalidInput
from server.app import create_app
from server.serving import _Server
from server.settings import Settings
from tests.backends import CHECKOUT
from tests.ports import free_port
from tests.waiting import wait_for

pytestmark = pytest.mark.slow
SECONDS = 60


class Terminal:
    """Commands on a store of their own."""

    def __init__(self, folder: Path) -> None:
        self.environment = {**os.environ, "HALVING_ROOT": str(folder / "root")}
        self._served: list[subprocess.Popen[str]] = []

    def tokens(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """``halving tokens …`` in this process: one of its own would import all of it again."""
        with (
            pytest.MonkeyPatch.context() as patch,
            redirect_stdout(StringIO()) as said,
            redirect_stderr(StringIO()) as complained,
        ):
            patch.setenv("HALVING_ROOT", self.environment["HALVING_ROOT"])
            status = main(["tokens", *arguments])
        return subprocess.CompletedProcess(arguments, status, said.getvalue(), complained.getvalue())

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self._command(arguments),
            env=self.environment,
            cwd=CHECKOUT,
            capture_output=True,
            text=True,
            check=False,
        )

    def serve(self, *arguments: str) -> tuple["subprocess.Popen[str]", str]:
        """A server that listens, and its address."""
        port = free_port()
        command = self._command(("serve", "--json", "--port", str(port), *arguments))
        process = subprocess.Popen(
            command,
            env=self.environment,
            cwd=CHECKOUT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._served.append(process)
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        assert said["url"].endswith(f":{port}")
        return process, f"http://127.0.0.1:{port}"

    def end(self) -> None:
        for process in self._served:
            process.kill()
            process.communicate()

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "halving.cli.main", *arguments]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.end()


def test_a_server_that_others_can_reach_starts_only_when_somebody_has_a_token(terminal: Terminal) -> None:
    refused = terminal.run("serve", "--host", "0.0.0.0", "--port", str(free_port()))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
    for said in ("--host 0.0.0.0", "other machines", "halving tokens create NAME --scope admin"):
        assert said in refused.stderr
    made = terminal.tokens("create", "ada", "--scope", "write", "--project", "digits", "--days", "30")
    token = made.stdout.strip()
    assert token.startswith("hlv_")
    assert token not in made.stderr
    _, url = terminal.serve("--host", "0.0.0.0", "--dagster-url", "http://dagster:3000")
    with pytest.raises(HTTPError) as refusal:
        urllib.request.urlopen(f"{url}/api/v1/session", timeout=SECONDS)
    refusal.value.close()
    assert refusal.value.code == 401
    request = urllib.request.Request(f"{url}/api/v1/session", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        session = json.load(answer)
    assert (session["actor"], session["projects"], session["dagster_url"]) == (
        "ada",
        ["digits"],
        "http://dagster:3000",
    )


def test_the_address_of_dagster_s_ui_may_come_from_the_environment(terminal: Terminal) -> None:
    terminal.environment["HALVING_DAGSTER_URL"] = "http://dagster:3000"
    _, url = terminal.serve()
    with urllib.request.urlopen(f"{url}/api/v1/session", timeout=SECONDS) as answer:
        assert json.load(answer)["dagster_url"] == "http://dagster:3000"


def test_the_base_path_comes_from_flag_or_environment_and_is_checked_at_start(
    terminal: Terminal,
) -> None:
    terminal.environment["HALVING_BASE_PATH"] = "/user/ada/proxy/3001/"
    for arguments, base in (
        ((), "/user/ada/proxy/3001"),
        (("--base-path", "/halving"), "/halving"),
        (("--base-path", "/"), ""),
    ):
        _, url = terminal.serve(*arguments)
        with urllib.request.urlopen(f"{url}{base}/", timeout=SECONDS) as answer:
            assert f'data-base="{base}"' in answer.read().decode()
    refused = terminal.run("serve", "--base-path", "halving")
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1)
    assert (
        "base_path = 'halving' is not accepted: give the path below which a proxy shows the server"
        in refused.stderr
    )


def test_tokens_are_listed_without_what_they_are_and_revoked_by_name(terminal: Terminal) -> None:
    token = terminal.tokens("create", "ada").stdout.strip()
    again = terminal.tokens("create", "ada")
    assert (again.returncode, "another name" in again.stderr) == (1, True)
    listing = terminal.tokens("list")
    assert "holds" in listing.stdout
    assert token not in listing.stdout
    (listed,) = json.loads(terminal.tokens("list", "--json").stdout)["tokens"]
    assert (listed["name"], listed["scope"], listed["holds"], "digest" in listed) == (
        "ada",
        "read",
        True,
        False,
    )
    assert terminal.tokens("revoke", "ada").returncode == 0
    assert "revoked" in terminal.tokens("list").stdout
    unknown = terminal.tokens("revoke", "bob")
    assert (unknown.returncode, "no token 'bob'; there are ada" in unknown.stderr) == (1, True)
    assert terminal.run("serve", "--tokens").returncode == 1  # the only token is revoked


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_server_ends_soon_although_a_client_holds_its_connection(
    terminal: Terminal, how: signal.Signals
) -> None:
    process, url = terminal.serve()
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=SECONDS) as connection:
        connection.sendall(b"GET /api/v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"200 OK" in connection.recv(65_536)
        process.send_signal(how)
        wait_for(lambda: process.poll() is not None, 15, "the server's end")
    _, said = process.communicate()
    assert "Traceback" not in said
    assert process.returncode in (0, 130, -how)


def test_a_port_that_is_taken_is_said_in_one_line(terminal: Terminal) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = terminal.run("serve", "--port", str(taken.getsockname()[1]))
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert "address already in use" in refused.stderr


@pytest.mark.parametrize("port", [-1, 0, 65_536, 70_000])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(InvalidInput, match=f"port = {port} is not accepted"):
        Settings(port=port)


def test_a_garbage_collection_of_a_server_passes_over_what_stays_as_long_as_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = free_port()
    app = create_app(Settings(root=str(tmp_path), port=port))
    server = _Server(uvicorn.Config(app, port=port, log_config=None), app, as_json=True)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: capsys.readouterr().out, SECONDS, "the server says that it listens")
        assert not any(tracked is app for tracked in gc.get_objects())
    finally:
        server.should_exit = True
        thread.join(SECONDS)
        gc.unfreeze()
