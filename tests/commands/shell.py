"""A terminal in which the tests type ``halving …``, and the small sweep that one has run."""

import io
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from halving.cli.main import main
from tests.backends import CHECKOUT, Dagster


def on_swept(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test of the fixture ``swept_lab`` as slow, and run it in the xdist worker of its sweep."""
    return pytest.mark.slow(pytest.mark.xdist_group("swept")(test))


class Shell:
    """A terminal in the checkout, on a store of its own."""

    def __init__(self, folder: Path) -> None:
        dagster = Dagster(folder)
        self.folder = folder
        self.environment = dagster.environment
        self.backend = dagster.backend

    def copy(self, folder: Path) -> "Shell":
        """Another terminal, on a copy of the store."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Shell(folder)

    def spec(self, data: Any) -> str:
        path = self.folder / "sweep.yaml"
        path.write_text(yaml.safe_dump(data))
        return str(path)

    def start(self, *arguments: str, before: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*before, sys.executable, "-m", "halving.cli.main", *arguments],
            cwd=CHECKOUT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate()
        return process.returncode, out, err

    def call(self, *arguments: str) -> tuple[int, str, str]:
        """As :meth:`run`, but in this process: it has imported what each process would import again."""
        out = io.StringIO()
        err = io.StringIO()
        with pytest.MonkeyPatch.context() as patched, redirect_stdout(out), redirect_stderr(err):
            for name, value in self.environment.items():
                patched.setenv(name, value)
            patched.chdir(CHECKOUT)
            handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
            status = main([*arguments])
            for number, handler in handlers.items():
                # a sweep ends with its command, and would set them for itself
                signal.signal(number, handler)
        return status, out.getvalue(), err.getvalue()

    def fails(self, *arguments: str) -> str:
        """What a command that fails says."""
        status, _, err = self.call(*arguments)
        assert status == 1
        return err

    def data(self, *arguments: str) -> Any:
        """What a command prints with ``--json``."""
        status, out, err = self.call(*arguments, "--json")
        assert (status, err) == (0, ""), out + err
        return json.loads(out)


class Swept(NamedTuple):
    """A sweep that ``halving sweep`` has run: where, from which file, and what it said."""

    shell: Shell
    spec: Path
    status: int
    out: str
    err: str
