"""Which processes are started while a test runs."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

_QUESTIONS = {"gcc", "git", "ld", "ldconfig", "nvidia-smi", "uname"}
"""Programs that answer a question at once: the SDK asks about the code and the machine of each run, and some
packages at their import.
"""


@contextmanager
def started_processes() -> Iterator[list[str]]:
    """The processes started within the ``with`` block: programs, forks, and Python's own by their names."""
    started: list[str] = []
    open_process = subprocess.Popen.__init__
    start_process = BaseProcess.start
    fork = os.fork

    def note_program(process: "subprocess.Popen[Any]", args: Any, *rest: Any, **options: Any) -> None:
        program = os.fsdecode(args if isinstance(args, str | bytes | os.PathLike) else args[0])
        if Path(program).name not in _QUESTIONS:
            started.append(program)
        open_process(process, args, *rest, **options)

    def note_process(process: BaseProcess) -> None:
        started.append(process.name)
        start_process(process)

    def note_fork() -> int:
        started.append("os.fork")
        return fork()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", note_program)
        patch.setattr(BaseProcess, "start", note_process)
        patch.setattr(os, "fork", note_fork)
        yield started
