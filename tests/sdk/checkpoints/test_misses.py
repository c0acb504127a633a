"""What is counted as skipped."""

import signal

import pytest

from halving.checkpoints.misses import Misses, as_record


def test_one_that_is_made_up_after_a_record_had_it_is_subtracted_once() -> None:
    misses = Misses()
    misses.add("the store does not answer")
    recorded = misses.all()
    misses.forget(recorded)
    misses.add_begun("nor now")
    misses.note_made_up()
    assert [miss.why for miss in misses.all()] == ["nor now"]


@pytest.mark.timeout(60)
def test_a_signals_handler_may_ask_while_the_main_thread_counts() -> None:
    misses = Misses()
    counts = list[int]()

    def ask(*_: object) -> None:
        misses.add_begun("in the handler")
        counts.append(len(misses.all()))

    before = signal.signal(signal.SIGUSR1, ask)
    try:
        with misses._changing:
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert counts == [1]
    assert as_record(misses.all()) is not None
