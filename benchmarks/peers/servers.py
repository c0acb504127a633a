"""A tracker's server in a session of its own."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port
from tests.waiting import wait_for


@contextmanager
def running(
    name: str, command: Sequence[str], folder: Path, variables: Mapping[str, str], ready: Callable[[int], bool]
) -> Iterator[tuple[int, int]]:
    """The process id and the port of a server that is ready, for the length of the ``with`` block.

    Args:
        command: with ``{port}``.
        ready: whether the server on this port is; may raise OSError or KeyError while it is not.
    """
    port = free_port()
    process = subprocess.Popen(
        [each.format(port=port) if "{port}" in each else each for each in command],
        cwd=folder,
        env=dict(variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def answers() -> bool:
        try:
            return ready(port)
        except (OSError, KeyError):
            return False

    try:
        wait_for(answers, 300, f"{name}'s server is ready")
        yield process.pid, port
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
