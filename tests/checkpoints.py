"""Checkpoints as bytes, and a gate before those that are written beside training."""

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from halving.checkpoints.serialization import pack, unpack


def pack_state(state: dict[str, Any]) -> bytes:
    """What :func:`halving.checkpoints.serialization.pack` writes."""
    file = io.BytesIO()
    pack(state, file)
    return file.getvalue()


def unpack_state(data: bytes, state: dict[str, Any], *, with_rng: bool = True) -> dict[str, Any]:
    """What :func:`halving.checkpoints.serialization.unpack` reads."""
    return unpack(io.BytesIO(data), state, with_rng=with_rng)


class Gate:
    """Lets parts be written, or not yet, or not at all."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.fault: Exception | None = None

    def pass_through(self) -> None:
        self.open.wait(60)
        if self.fault is not None:
            raise self.fault


@contextmanager
def gate_before_writing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Hold up the writing of checkpoints beside training."""
    from halving.checkpoints.sharded.writer import StoreWriter  # which imports torch

    gate = Gate()
    write = StoreWriter.write_data

    def write_data(writer: Any, plan: Any, planner: Any) -> Any:
        gate.pass_through()
        return write(writer, plan, planner)

    monkeypatch.setattr(StoreWriter, "write_data", write_data)
    yield gate
    gate.open.set()
