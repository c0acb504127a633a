"""A Postgres server of the tests' own, from the machine's binaries, on a free port."""

import os
import shutil
import subprocess
from pathlib import Path

from tests.ports import free_port

INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or [
    Path(path) for path in [shutil.which("initdb")] if path
]


# Dagster opens a connection for each thing that it asks; SCRAM would hash 4,096 times for each, on both
# sides.
_BY_PASSWORD = "md5"


class Postgres:
    """A running server; :meth:`database` makes an empty database in it.

    Unless ``durable`` it never waits for the disk.

    It listens on ``address``, of this machine; with a ``password`` it can be reached from others, by who
    knows it.
    """

    def __init__(
        self, folder: Path, *, durable: bool = False, address: str = "127.0.0.1", password: str | None = None
    ) -> None:
        self._data = folder / "data"
        self._binaries = INSTALLED[-1].parent
        folder.chmod(0o755)
        self._data.mkdir()
        # Postgres refuses to run as root.
        self._as = (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        )
        if self._as:
            shutil.chown(self._data, "postgres", "postgres")
        self._address = address
        self._password = password
        self._port = free_port(address)
        secured: list[object] = []
        if password:
            named = folder / "password"
            named.write_text(password)
            named.chmod(0o644)
            secured = ["--pwfile", named]
        self._call(
            "initdb",
            "-D",
            self._data,
            "-U",
            "tests",
            "-A",
            _BY_PASSWORD if password else "trust",
            *secured,
            "--no-sync",
            "-E",
            "UTF8",
        )
        if password:
            with (self._data / "pg_hba.conf").open("a") as access:
                access.write(f"host all all all {_BY_PASSWORD}\n")
        self._options = (
            f"-p {self._port} -h {address} -c unix_socket_directories='' -c "
            f"fsync={'on' if durable else 'off'}"
        )
        self.start()

    def database(self, name: str, template: str = "template1") -> str:
        """The URL of a new database, a copy of ``template``, to which nobody may be connected."""
        # by ``createdb``, which is a process, it takes four times as long; most tests of a catalog make a
        # database
        import psycopg
        from psycopg.sql import SQL, Identifier

        statement = SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
            Identifier(name), Identifier(template)
        )
        with psycopg.connect(
            host=self._address, port=self._port, user="tests", password=self._password, dbname="postgres"
        ) as connection:
            connection.autocommit = True  # no transaction may make a database
            connection.execute(statement)
        return self.url(name)

    def url(self, name: str) -> str:
        """The URL of a database, as SQLAlchemy takes it."""
        return self.address_of(name).replace("postgresql:", "postgresql+psycopg:")

    def address_of(self, name: str) -> str:
        """The same as Postgres' own clients take it."""
        user = f"tests:{self._password}" if self._password else "tests"
        return f"postgresql://{user}@{self._address}:{self._port}/{name}"

    def start(self, options: str = "") -> None:
        """Start it, again after :meth:`stop`; ``options`` as ``-c max_connections=20``."""
        self._call(
            "pg_ctl",
            "-D",
            self._data,
            "-w",
            "-l",
            self._data / "log",
            "-o",
            f"{self._options} {options}",
            "start",
        )

    def stop(self) -> None:
        self._call("pg_ctl", "-D", self._data, "-m", "immediate", "stop")

    def dump(self, name: str) -> str:
        """All that is in a database, as text."""
        return self._call(
            "pg_dump",
            "--inserts",
            "-h",
            self._address,
            "-p",
            self._port,
            "-U",
            "tests",
            name,
            output=subprocess.PIPE,
        )

    def _call(self, program: str, *arguments: object, output: int = subprocess.DEVNULL) -> str:
        command = [*self._as, str(self._binaries / program), *map(str, arguments)]
        credentials = {"PGPASSWORD": self._password} if self._password else {}
        # A server that is started has no end of its output that could be waited for.
        return subprocess.run(
            command, check=True, stdout=output, cwd="/", env=os.environ | credentials, text=True
        ).stdout
