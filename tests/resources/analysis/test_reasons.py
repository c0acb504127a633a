"""The one line that says why an attempt ended."""

import traceback

import pytest

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

_NOTE = "rank 1 ran out of memory in step 3. The next attempt goes on with half the micro-batch"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, None),
        ("", None),
        (" \n", None),
        ("pod pod-a was deleted: spot reclaim", "pod pod-a was deleted: spot reclaim"),
        ("Traceback (most recent call last):\n  File 'a', line 1\nValueError: [boom]", "ValueError: [boom]"),
        (_CHAINED, "rank 1: halving.errors.OutOfMemory: rank 1 ran out of memory in step 1, with 2 micro-batches of 512 rows"),
        (
            "node 1 of the gang (ranks 2 to 3): rank 3: Traceback (most recent call last):\n  File 'a', line 1\nKeyError: 'lr'",
            "node 1 of the gang (ranks 2 to 3): rank 3: KeyError: 'lr'",
        ),
        (
            "Where each rank was when the collective was given up:\n  rank 1 (did not come):\n    File 'a'\nrank 1 did not come to save",
            "rank 1 did not come to save",
        ),
        ("Traceback (most recent call last):\n  File 'a', line 1", "File 'a', line 1"),  # it was cut off there
        (
            f"rank 1: Traceback (most recent call last):\n  File 'a', line 1\ntorch.OutOfMemoryError: CUDA out of memory\n{_NOTE}",
            _NOTE,
        ),
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
