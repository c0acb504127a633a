"""A Postgres server of the tests' own, from the machine's binaries, on a free port."""

import os
import shutil
import socket
import subprocess
from pathlib import Path

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [Path(found) for found in [shutil.which("initdb")] if found]


class Postgres:
    """A running server; :meth:`database` makes an empty database in it. Unless ``durable`` it never waits for the disk."""

    def __init__(self, folder: Path, *, durable: bool = False) -> None:
        self._data, self._binaries = folder / "data", INSTALLED[-1].parent
        folder.chmod(0o755)
        self._data.mkdir()
        # Postgres refuses to run as root.
        self._as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        if self._as:
            shutil.chown(self._data, "postgres", "postgres")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._call("initdb", "-D", self._data, "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = f"-p {self._port} -h 127.0.0.1 -c unix_socket_directories='' -c fsync={'on' if durable else 'off'}"
        self._call("pg_ctl", "-D", self._data, "-w", "-l", self._data / "log", "-o", options, "start")

    def database(self, name: str) -> str:
        """The URL of a new database."""
        self._call("createdb", "-h", "127.0.0.1", "-p", self._port, "-U", "tests", name)
        return f"postgresql+psycopg://tests@127.0.0.1:{self._port}/{name}"

    def stop(self) -> None:
        self._call("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def _call(self, program: str, *arguments: object) -> None:
        command = [*self._as, str(self._binaries / program), *map(str, arguments)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/")
