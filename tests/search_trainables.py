"""Trainables for the tests of the search: what they report says how far they got."""

import time

from halving import Run


def train_nothing(run: Run) -> None:
    """An epoch costs nothing."""
    for epoch in run.epochs():
        run.report(score=run.params["x"] * epoch)
        run.save(epoch=epoch)


def train_until_stopped(run: Run) -> None:
    """Short epochs, very many of them."""
    state = run.restore(trained=0)
    for epoch in run.epochs():
        time.sleep(0.02)
        run.report(score=float(epoch))
        state["trained"] = epoch
        run.save(**state)


def stream_nan(run: Run) -> None:
    """Its loss is NaN soon, which only the stream shows: it would take for ever to report."""
    for _ in run.epochs():
        run.log({"train/loss": 1.0}, step=1)
        run.log({"train/loss": float("nan")}, step=2)
        time.sleep(600)


def exceed_bounds(run: Run) -> None:
    """Better with every epoch, and slower."""
    for epoch in run.epochs():
        run.report(score=run.params["x"], latency_ms=100.0 * run.params["x"])
        run.save(epoch=epoch)
