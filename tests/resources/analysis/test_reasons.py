"""The one line that says why an attempt ended."""

import traceback

import pytest

from halving.trial_process.main import _what_was_allocated, _without_own_frames
from resources.analysis.reasons import short_reason

_CHAINED = """rank 1: Traceback (most recent call last):
  File "train.py", line 3, in train
    step()
RuntimeError: CUDA out of memory

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "train.py", line 9, in train
    training.step(loss, batch)
halving.errors.OutOfMemory: rank 1 ran out of memory in step 1, with 2 micro-batches of 512 rows
|=====================|
| PyTorch CUDA memory |
|=====================|"""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, None),
        ("", None),
        (" \n", None),
        ("pod pod-a was deleted: spot reclaim", "pod pod-a was deleted: spot reclaim"),
        ("Traceback (most recent call last):\n  File 'a', line 1\nValueError: [boom]", "ValueError: [boom]"),
        (
            _CHAINED,
            (
                "rank 1: halving.errors.OutOfMemory: rank 1 ran out of memory in step 1, with 2 "
                "micro-batches "
                "of 512 rows"
            ),
        ),
        (
            (
                "node 1 of the gang (ranks 2 to 3): rank 3: Traceback (most recent call last):\n  File 'a', "
                "line 1\nKeyError: 'lr'"
            ),
            "node 1 of the gang (ranks 2 to 3): rank 3: KeyError: 'lr'",
        ),
        (
            (
                "Where each rank was when the collective was given up:\n  rank 1 (did not come):\n    File "
                "'a'\nrank 1 did not come to save"
            ),
            "rank 1 did not come to save",
        ),
        # it was cut off there
        ("Traceback (most recent call last):\n  File 'a', line 1", "File 'a', line 1"),
    ],
)
def test_a_reason_is_the_exceptions_line_or_the_last(error: str | None, reason: str | None) -> None:
    assert short_reason(error) == reason


def test_what_is_noted_behind_an_exception_and_a_longer_message_are_no_reason() -> None:
    error = ValueError("the first line\nand more of it")
    error.add_note("a note")
    try:
        raise error
    except ValueError as raised:
        text = "".join(traceback.format_exception(raised))
    assert short_reason(text) == "ValueError: the first line"


def _traceback_of(error: Exception) -> str:
    try:
        raise error
    except Exception as raised:  # noqa: BLE001
        return _without_own_frames(raised)


def test_memory_that_ran_out_outside_of_a_step_has_rank_and_allocation_as_reason() -> None:
    error = MemoryError("Unable to allocate 2.00 EiB")
    error.add_note(_what_was_allocated(None))
    reason = short_reason(_traceback_of(error))
    assert reason is not None
    assert reason.startswith("rank 0 ran out of memory: the process had taken ")


def test_the_reason_of_several_errors_at_once_is_their_groups() -> None:
    group = ExceptionGroup("two of the loaders", [ValueError("a"), TypeError("b")])
    assert (
        short_reason(f"rank 1: {_traceback_of(group)}")
        == "rank 1: ExceptionGroup: two of the loaders (2 sub-exceptions)"
    )
    later = RuntimeError("given up")
    later.__cause__ = group
    assert short_reason(_traceback_of(later)) == "RuntimeError: given up"
