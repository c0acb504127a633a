"""A server in a process of its own, and the CPU that it uses."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import CHECKOUT
from tests.ports import free_port
from tests.waiting import wait_for

SERVER = """
import sys
from server.serving import serve
from server.settings import Settings
serve(Settings(root=sys.argv[1], port=int(sys.argv[2])))
"""


@contextmanager
def running_server(root: str, settled: float = 3.0) -> Iterator[tuple[int, int]]:
    """The process id and the port of a server on a store, ``settled`` seconds after it answered.

    In three seconds the index has read the store.
    """
    with server_process(root) as (process, port):

        def answers() -> bool:
            try:
                return bool(urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/health").status == 200)
            except OSError:
                return False

        wait_for(answers, 300, "the server answers")
        time.sleep(settled)
        yield process, port


@contextmanager
def server_process(root: str) -> Iterator[tuple[int, int]]:
    """The process id and the port of a server that starts.

    The tests of quick runs fork one instead.
    """
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER, root, str(port)], cwd=CHECKOUT, stdout=subprocess.DEVNULL
    )
    try:
        yield process.pid, port
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def cpu_of(process: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
