import threading
from collections.abc import Iterator

import pytest

from halving.checkpoints import large_model
from halving.checkpoints.sharded.save import Save
from tests.checkpoints import Gate, gate_before_writing
from tests.sdk.checkpoints.large_models import MIN_BYTES


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Before what is written beside training."""
    with gate_before_writing(monkeypatch) as gate:
        yield gate


@pytest.fixture
def wait_begun(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once training, and not the thread of a record, waits for a save."""
    event = threading.Event()
    join = Save.join

    def join_and_tell(save: Save, seconds: float | None = None) -> bool:
        if threading.current_thread().name != "halving-checkpoint-record":
            event.set()
        return join(save, seconds)

    monkeypatch.setattr(Save, "join", join_and_tell)
    return event


@pytest.fixture
def small_models_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_model, "MIN_BYTES", MIN_BYTES)
