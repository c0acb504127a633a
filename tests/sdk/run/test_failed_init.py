"""A run that could not be opened: nothing of it goes on, and its attempt has an end."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from halving import Store
from halving.journal import directory
from halving.journal.appender import Appender
from halving.query.runs import read_run
from halving.run import signals
from tests.sdk.run.runs import start
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def nothing_goes_on(store: Store) -> Iterator[None]:
    """After each test: the attempt has failed, and neither a thread, nor a journal, nor an open run is left
    of it.
    """
    before = set(threading.enumerate())
    yield
    assert json.loads(store.read("runs/project=p/r/end-0001.json"))["status"] == "failed"
    assert read_run(store, "p", "r").status == "failed"
    assert signals._open_runs == {}
    wait_for(lambda: set(threading.enumerate()) <= before, 60, "the end of the run's threads")
    assert directory._held == {}
    assert directory.attempt_folders(store) == []


def interrupt(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("attribute", ["recover_run", "MetricWriter", "Validator", "SystemMetrics"])
def test_ctrl_c_while_a_run_is_opened_ends_its_attempt(
    store: Store, monkeypatch: pytest.MonkeyPatch, attribute: str
) -> None:
    import halving.run.run

    real: Callable[..., Any] = getattr(halving.run.run, attribute)

    def interrupt_once(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr(halving.run.run, attribute, real)
        interrupt()
        return real(*arguments, **named)

    monkeypatch.setattr(halving.run.run, attribute, interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        start(store, system_metrics=0.01)


@pytest.mark.parametrize("name", ["halving-metrics-r", "halving-system-r"])
def test_ctrl_c_just_after_a_thread_has_started_stops_that_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = threading.Thread.start

    def start_and_interrupt(thread: threading.Thread) -> None:
        real(thread)
        if thread.name == name:
            interrupt()

    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        start(store, system_metrics=0.01)


def test_ctrl_c_while_the_first_log_segment_is_made_leaves_no_journal(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Appender._create
    waits = threading.Event()

    def create(appender: Appender) -> Any:
        waits.set()
        with suppress(TimeoutError):
            # who removes the folder now, without waiting for this thread, has it made again
            wait_for(lambda: directory._held == {}, 0.5, "the journal's folder to be released", every=0.01)
        return real(appender)

    start_thread = threading.Thread.start

    def start_and_interrupt(thread: threading.Thread) -> None:
        start_thread(thread)
        assert waits.wait(30)
        interrupt()

    monkeypatch.setattr(Appender, "_create", create)
    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        start(store)


@pytest.mark.parametrize("attribute", ["MetricWriter", "SystemMetrics"])
def test_a_system_that_gives_no_thread_ends_the_attempt(
    store: Store, monkeypatch: pytest.MonkeyPatch, attribute: str
) -> None:
    import halving.run.run

    real: Callable[..., Any] = getattr(halving.run.run, attribute)

    def without_room(*arguments: Any, **named: Any) -> Any:
        # more than a process can address, whatever the system promises
        before = threading.stack_size(1 << 60)
        try:
            return real(*arguments, **named)
        finally:
            threading.stack_size(before)

    monkeypatch.setattr(halving.run.run, attribute, without_room)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        start(store, system_metrics=0.01)


def test_a_damaged_checkpoint_record_ends_the_attempt(store: Store) -> None:
    store.create("runs/project=p/r/checkpoints/00000001-0001-000000.json", b"{")
    with pytest.raises(ValueError, match="Expecting property name"):
        start(store, system_metrics=0.01)
