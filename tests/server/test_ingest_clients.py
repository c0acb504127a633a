"""Clients of a server's ingest: what they are told of its address, its token and its absence."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import halving
from halving.errors import InvalidInput, StoreError
from halving.store.server_store import ServerStore
from resources.backend import Backend
from server.identity.tokens import create_token
from tests.ports import free_port
from tests.server.ingested import stored_points
from tests.server.processes import is_answering
from tests.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:halving")]


def test_a_token_is_needed_and_a_wrong_address_is_said_at_once(
    backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    token = create_token(backend.catalog, "ada", scope="write", projects=["mine"])
    reader = create_token(backend.catalog, "eve", scope="read")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [
        sys.executable,
        "-m",
        "halving.cli.main",
        "serve",
        "--tokens",
        "--port",
        str(port),
        "--root",
        backend.store.root,
    ]
    with subprocess.Popen(command) as process:
        try:
            wait_for(lambda: is_answering(address), 120, "the server answers")
            refused: list[tuple[dict[str, Any], str]] = [
                ({}, r"refuses: a token is needed.*halving\.init\(token=…\) or HALVING_TOKEN"),
                ({"token": "hlv_wrong"}, "refuses: this token does not hold"),
                ({"token": reader}, "refuses: .*'eve' may read: this needs the scope write"),
            ]
            for environment, message in refused:
                with pytest.raises(StoreError, match=message):
                    halving.init("mine", {}, url=address, **environment)
            with (
                contextlib.closing(ServerStore(address)) as store,
                pytest.raises(StoreError, match="a token is needed"),
            ):
                store.put_blob(os.urandom(32 << 20))  # which is refused before it is read
            monkeypatch.setenv("HALVING_TOKEN", token)
            with pytest.raises(StoreError, match="may not write into project 'theirs': it may into mine"):
                halving.init("theirs", {}, url=address)
            monkeypatch.setenv("HALVING_URL", address)
            with halving.init("mine", {}, system_metrics=None) as run:
                run.log({"loss": 1.0}, step=0)
        finally:
            process.send_signal(signal.SIGTERM)
    assert stored_points(backend.store.root, run.id, project="mine") == [(0, 1.0)]


@pytest.mark.parametrize(
    "url", ["127.0.0.1:3001", "ftp://host", "http://", "http://host:port", "http://host/?a=b"]
)
def test_what_is_no_servers_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="is not accepted: give a server's address, such as"):
        halving.init("p", {}, url=url)


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(InvalidInput) as refused:
        halving.init("p", {}, url="http://ada:secret@host")
    assert "secret" not in str(refused.value)


def test_a_store_and_a_server_are_not_given_together(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="are not accepted together"):
        halving.init("p", {}, tmp_path, url="http://127.0.0.1:1")
    with pytest.raises(InvalidInput, match="token is not accepted without url"):
        halving.init("p", {}, tmp_path, token="hlv_x")
