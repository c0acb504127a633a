"""A Redis server of the tests' own, from the machine's program, on a free port."""

import shutil
import subprocess
import time
from pathlib import Path

from tests.ports import free_port

INSTALLED = shutil.which("redis-server")


class Redis:
    """A running server; what is stored lives in its memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self._databases = iter(range(1, 10_000))
        self.start()

    def address(self) -> str:
        """The address of an empty database in it."""
        return f"redis://127.0.0.1:{self.port}/{next(self._databases)}"

    def start(self) -> None:
        """Start it, again after :meth:`stop`."""
        import redis

        options = [
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--databases",
            "10000",
        ]
        command = [INSTALLED or "redis-server", *options, "--dir", str(self._folder)]
        self._server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        with redis.Redis(port=self.port) as client:
            while True:
                try:
                    client.ping()
                except redis.ConnectionError:
                    if self._server.poll() is not None or time.monotonic() > deadline:
                        raise
                    time.sleep(0.02)
                else:
                    return

    def stop(self) -> None:
        """End it, with all that it has; its clients' connections break."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
