"""Trainables that die, for processes that are forked with nothing else imported."""

import os
import signal

from halving import Run


def take_all_memory(run: Run) -> None:
    kept = []
    while True:
        kept.append(b"x" * 2**24)


SEEN_AT_IMPORT = sorted(os.environ)


def tell_its_environment(run: Run) -> None:
    raise RuntimeError(f"{SEEN_AT_IMPORT} {sorted(os.environ)}")


def be_killed(run: Run) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
