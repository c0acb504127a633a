from collections.abc import Iterator

import pytest

from tests.checkpoints import Gate, gate_before_writing


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Before what is written beside training."""
    with gate_before_writing(monkeypatch) as gate:
        yield gate
