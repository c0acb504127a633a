"""The rows that every loader reads, and the measurement of it.

It runs in each loader's environment: standard library and NumPy only. A script ``load_NAME.py`` hands
:func:`main` how it writes rows and how it reads them back; everything else is the same for all.
"""

import gc
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

BLOB_BYTES = 10_000
FLOATS = 32
_WARM_SECONDS = 1.0
_RESUME_AFTER = 40  # batches


class Opened(Protocol):
    """An open loader: iterating it gives batches.

    ``state`` is its position, or None if it cannot tell.
    """

    def __iter__(self) -> Iterator[Any]: ...

    def state(self) -> Any: ...


@dataclass
class Reading:
    """A loader's batches and its state, from two functions."""

    batches: Callable[[], Iterator[Any]]
    where: Callable[[], Any] = lambda: None

    def __iter__(self) -> Iterator[Any]:
        return self.batches()

    def state(self) -> Any:
        return self.where()


def main(
    package: str,
    write: Callable[[Path, str, int], None],
    read: Callable[[Path, str, int, Any], Opened],
    *,
    resumes: bool = True,
) -> None:
    """Do the work that ``sys.argv[1]`` describes as JSON and print what was measured as the last line.

    Args:
        write: called with a folder, ``blobs`` or ``floats``, and the number of rows.
        read: called with the folder, the kind, the rows of a batch and a state (None at first); opens a
            shuffled epoch.
        resumes: whether a state is of any use.
    """
    arguments = json.loads(sys.argv[1])
    folder = Path(arguments["folder"])
    kind = arguments["kind"]
    size = arguments["batch"]
    result: dict[str, Any] = {"version": importlib.metadata.version(package)}
    with redirect_stdout(sys.stderr):  # some talk
        if arguments["phase"] == "write":
            write(folder, kind, arguments["rows"])
        else:
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for the loader and its threads
            result |= measure(
                lambda state: read(folder, kind, size, state), kind, arguments["seconds"], resumes
            )
    print(json.dumps(result), flush=True)


def measure(read: Callable[[Any], Opened], kind: str, seconds: float, resumes: bool) -> dict[str, Any]:
    """Rows a second of whole epochs, and ms from opening a loader with a state to its first batch."""
    _rows(read(None), kind, min(seconds, _WARM_SECONDS))
    gc.collect()
    rows = spent = 0.0
    while spent < seconds:
        more, took = _rows(read(None), kind, seconds - spent)
        rows = rows + more
        spent = spent + took
    resumed = []
    for _ in range(5 if resumes else 0):
        opened = read(None)
        batches = iter(opened)
        for _ in range(_RESUME_AFTER):
            next(batches)
        state = opened.state()
        del batches, opened
        gc.collect()
        began = time.perf_counter()
        count(next(iter(read(state))), kind)
        resumed.append((time.perf_counter() - began) * 1e3)
    return {"rows_s": rows / spent, "resume_ms": sorted(resumed)[len(resumed) // 2] if resumed else None}


def _rows(opened: Opened, kind: str, seconds: float) -> tuple[int, float]:
    rows = 0
    began = time.perf_counter()
    for batch in opened:
        rows += count(batch, kind)
        if time.perf_counter() - began > seconds:
            break
    return rows, time.perf_counter() - began


def count(batch: Any, kind: str) -> int:
    """Rows of a batch: a sequence of ``bytes``, or an array or tensor ``(rows, 32)`` of float32."""
    if kind == "floats":
        if batch.shape[1:] != (FLOATS,) or str(batch.dtype).rpartition(".")[2] != "float32":
            raise ValueError(f"not an array of {FLOATS} float32: {batch.shape}, {batch.dtype}")
    elif any(len(blob) != BLOB_BYTES for blob in batch):
        raise ValueError(f"not blobs of {BLOB_BYTES} bytes")
    return len(batch)


def blobs(rows: int) -> Iterator[bytes]:
    """Bytes that cannot be compressed, as those of images are."""
    random = np.random.RandomState(0)
    for _ in range(rows):
        yield random.bytes(BLOB_BYTES)


def floats(rows: int) -> Iterator["np.ndarray[Any, Any]"]:
    """Rows ``(n, 32)`` of float32, some thousand at a time."""
    random = np.random.RandomState(0)
    for begin in range(0, rows, 8192):
        yield random.random_sample((min(8192, rows - begin), FLOATS)).astype(np.float32)
