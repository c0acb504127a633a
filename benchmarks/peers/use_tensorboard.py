"""The work through the ``SummaryWriter`` that PyTorch ships, with one ``add_scalar`` a metric."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from benchmarks.peers.harness import Opened, main


def start(folder: Path, options: Mapping[str, Any]) -> Opened:
    writer = SummaryWriter(str(folder))
    add = writer.add_scalar

    def log(values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            add(name, value, step)

    return Opened(log, writer.close, lambda: _count(folder))


def _count(folder: Path) -> int:
    from tensorboard.compat.proto.event_pb2 import Event

    points = 0
    for path in folder.glob("events.*"):
        data = path.read_bytes()
        at = 0
        while at < len(data):  # a record: its length, that number's checksum, the event, the event's checksum
            (length,) = struct.unpack_from("<Q", data, at)
            points += len(Event.FromString(data[at + 12 : at + 12 + length]).summary.value)
            at += 16 + length
    return points


if __name__ == "__main__":
    main("tensorboard", start)
