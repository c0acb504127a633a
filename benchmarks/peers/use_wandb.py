"""The work through W&B in offline mode, without its system metrics and console capture."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import wandb

from benchmarks.peers.harness import NAMES, Opened, main

# the file is LevelDB's log: blocks of 32 KiB, a head of checksum, length and kind before each piece
_BLOCK = 32768
_HEAD = 7


def start(folder: Path, options: Mapping[str, Any]) -> Opened:
    settings = wandb.Settings(x_disable_stats=True, console="off", disable_git=True, disable_code=True)
    run = wandb.init(project="bench", config={"lr": 0.1}, dir=str(folder), mode="offline", settings=settings)
    return Opened(run.log, run.finish, lambda: _count(folder))


def _count(folder: Path) -> int:
    from wandb.proto.wandb_internal_pb2 import Record

    points = 0
    for path in folder.rglob("*.wandb"):
        for data in _records(path.read_bytes()):
            for item in Record.FromString(data).history.item:
                points += (item.key or "/".join(item.nested_key)) in NAMES
    return points


def _records(data: bytes) -> Iterator[bytes]:
    # the file starts with a head of its own
    at = _HEAD
    pieces = []
    while at + _HEAD <= len(data):
        if (left := _BLOCK - at % _BLOCK) < _HEAD:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        pieces.append(data[at + _HEAD : at + _HEAD + length])
        at += _HEAD + length
        if kind in (1, 4):  # whole, or the last piece
            yield b"".join(pieces)
            pieces = []


if __name__ == "__main__":
    main("wandb", start)
