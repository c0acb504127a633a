"""Checkpoints that the store did not take, by the records of those that it took and of the attempts' ends."""

from typing import Any

import pytest

from halving.query.runs import RunAttempt
from halving.query.skipped_checkpoints import SkippedCheckpoints, skipped_checkpoints
from halving.records.run_record import SavedCheckpoint

_AWAY = {"count": 5, "since": "2026-03-01T10:00:00+00:00", "why": "the store does not answer"}


def _checkpoint(epoch: int, attempt: int, missed: dict[str, Any] | None) -> SavedCheckpoint:
    return SavedCheckpoint(epoch, attempt, "sha256:c", {}, missed=missed)


def test_the_next_stored_checkpoint_or_the_end_tells_which_were_skipped() -> None:
    ended = {
        "saves": 1,
        "skipped": 0,
        "seconds": 1.0,
        "missed": {**_AWAY, "since": "2026-03-02T10:00:00+00:00", "count": 1},
    }
    attempts = [
        RunAttempt(1, "failed", "", None, 1.0),
        RunAttempt(2, "finished", "", None, 1.0, checkpoints=ended),
    ]
    skipped = skipped_checkpoints(
        [_checkpoint(1, 1, None), _checkpoint(7, 1, _AWAY), _checkpoint(7, 1, _AWAY)], attempts
    )
    assert skipped == [
        SkippedCheckpoints(1, 5, _AWAY["since"], _AWAY["why"], 7),
        SkippedCheckpoints(2, 1, "2026-03-02T10:00:00+00:00", _AWAY["why"], None),
    ]
    assert [each.text for each in skipped] == [
        (
            "attempt 1 skipped 5 checkpoints, from 2026-03-01 10:00:00 UTC on, until that of epoch 7 was "
            "stored: the store does not answer"
        ),
        (
            "attempt 2 skipped 1 checkpoint, from 2026-03-02 10:00:00 UTC on, and none was stored before it "
            "ended: the store does not answer"
        ),
    ]


@pytest.mark.parametrize(
    "missed",
    [{"count": 1}, {**_AWAY, "since": "yesterday"}, {**_AWAY, "count": "many"}, [1], "all"],
)
def test_a_record_in_another_form_says_nothing_of_skipped_checkpoints(
    missed: Any,
) -> None:
    assert skipped_checkpoints([_checkpoint(7, 1, missed), _checkpoint(9, 1, {**_AWAY, "more": 1})], []) == [
        SkippedCheckpoints(1, 5, _AWAY["since"], _AWAY["why"], 9)
    ]
