"""Checkpoints as bytes."""

import io
from typing import Any

from halving.checkpoints.serialization import pack, unpack


def packed(state: dict[str, Any]) -> bytes:
    """What :func:`halving.checkpoints.serialization.pack` writes."""
    file = io.BytesIO()
    pack(state, file)
    return file.getvalue()


def unpacked(data: bytes, state: dict[str, Any], *, with_rng: bool = True) -> dict[str, Any]:
    """What :func:`halving.checkpoints.serialization.unpack` reads."""
    return unpack(io.BytesIO(data), state, with_rng=with_rng)
