"""What hides the main module from a process that is started gives it back."""

import sys
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from threading import Event

import pytest

from resources.execution.main_module import start_without_main


class Started(BaseProcess):
    """A process that seems to start when a test says so."""

    def __init__(self) -> None:
        self.starts = Event()
        self.goes_on = Event()
        self.hidden = False

    def start(self) -> None:
        self.starts.set()
        self.goes_on.wait(60)
        self.hidden = sys.modules["__main__"].__file__ is None


def test_the_main_module_is_as_before_after_starts_from_two_threads_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    main = sys.modules["__main__"]
    monkeypatch.setattr(main, "__file__", "main.py", raising=False)  # a worker of pytest-xdist has none
    before = main.__spec__, main.__file__
    process = Started()
    other = Started()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(start_without_main, process)
        assert process.starts.wait(60)
        second = threads.submit(start_without_main, other)
        other.starts.wait(0.05)  # it would begin now if it did not wait for its turn
        other.goes_on.set()
        process.goes_on.set()
        first.result(60)
        second.result(60)
    assert (main.__spec__, main.__file__) == before
    assert process.hidden
    assert other.hidden
