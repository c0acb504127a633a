"""Why something waits is recorded once, and again where it is not known whether it was."""

import pytest

from resources.execution import waiting_note
from resources.execution.waiting_note import WaitingNote


def test_the_end_of_a_wait_is_recorded_although_recording_its_reason_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting_note, "_AGAIN_SECONDS", 0.0)
    recorded: list[str | None] = []

    def record(reason: str | None) -> None:
        recorded.append(reason)
        if len(recorded) in (1, 2):
            raise OSError("its answer is lost")

    note = WaitingNote("trial", record)
    for reason in ("for GPUs", None, None, None):
        note.note(reason)
    assert recorded == ["for GPUs", None, None]
