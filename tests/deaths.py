"""Trainables that die or hang, for processes that are forked with nothing else imported."""

import contextlib
import ctypes
import os
import signal
import time
from pathlib import Path

from halving import Run


def take_all_memory(run: Run) -> None:
    kept = []
    while True:
        kept.append(b"x" * 2**24)


SEEN_AT_IMPORT = sorted(os.environ)


def tell_its_environment(run: Run) -> None:
    raise RuntimeError(f"{SEEN_AT_IMPORT} {sorted(os.environ)}")


def be_killed(run: Run) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang(run: Run) -> None:
    """Hang after the first checkpoint, beside two processes of a loader, as ``params["how"]`` says."""
    from torch.utils.data import DataLoader

    for epoch in run.epochs():
        run.report(score=epoch / 10)
        run.save(epoch=epoch)
        if epoch == 1:
            continue
        batches = iter(DataLoader([1, 2, 3, 4], num_workers=2, collate_fn=lambda rows: rows))
        next(batches)
        partial = Path(run.store.root, "hangs.part")
        partial.write_text(str(os.getpid()))
        partial.rename(Path(run.store.root, "hangs"))
        if run.params["how"] == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if run.params["how"] == "holding the interpreter":
            ctypes.PyDLL(None).sleep(3600)
        time.sleep(3600)


def wait_for_all_children(run: Run) -> None:
    if not os.fork():
        os._exit(0)
    with contextlib.suppress(ChildProcessError):  # there are none any more
        while True:
            os.wait()
    raise RuntimeError("all children have ended")
