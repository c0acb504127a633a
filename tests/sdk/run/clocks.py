"""Clocks for tests of runs: one that only epochs and checkpoints move, and one that a test moves."""

import time
from typing import IO, Any

import pytest

from halving.checkpoints import interval, serialization
from tests.sdk.checkpoints.clocks import Clock


class Slow(Clock):
    """Time in which only epochs and checkpoints take any: 4 s and 1 s. So a checkpoint is due every 20 s."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        real = serialization.pack

        def pack(state: dict[str, Any], file: IO[bytes]) -> dict[str, Any]:
            self.now += 1
            return real(state, file)

        monkeypatch.setattr(interval, "monotonic", self)
        monkeypatch.setattr(serialization, "pack", pack)

    def epoch(self) -> None:
        self.now += 4


class OwnTime:
    """What ``time.monotonic`` says, and what a test lets pass beside it."""

    def __init__(self) -> None:
        self._passed = 0.0

    def __call__(self) -> float:
        return _monotonic() + self._passed

    def let_pass(self, seconds: float) -> None:
        self._passed += seconds


_monotonic = time.monotonic
own_time = OwnTime()
"""The time of a trial in the tests' process, for a test that uses the fixture ``own_clock``."""
