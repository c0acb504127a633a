"""Clients of a server in this process."""

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings

ADDRESS = "http://127.0.0.1:3001"


@contextmanager
def client_of(settings: Settings, address: str = ADDRESS) -> Iterator[TestClient]:
    """A client of a running server, for the length of the ``with`` block, by the machine's own address."""
    with TestClient(create_app(settings), base_url=address) as client:
        yield client
