"""Trainables that behave in every way that a trial's process has to report."""

import contextlib
import math
import multiprocessing
import time

import numpy as np
import torch

from halving import Run


def train(run: Run) -> None:
    run.restore(epoch=0)
    for epoch in run.epochs():
        run.log({"step": epoch}, step=epoch)
        run.report(score=epoch / 10)
        run.save(epoch=epoch)


def train_and_handle_all_errors(run: Run) -> None:
    with contextlib.suppress(Exception):
        train(run)


def train_three_and_wait(run: Run) -> None:
    for epoch in run.epochs():
        if epoch > 3:
            time.sleep(600)
        run.log({"step": epoch}, step=epoch)
        run.report(score=epoch / 10)
        run.save(epoch=epoch)


def train_three_and_raise_with_the_worker(run: Run) -> None:
    """As one does whose terminal is gone with the worker."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    for epoch in run.epochs():
        while epoch > 3 and parent.is_alive():
            pass
        if epoch > 3:
            raise BrokenPipeError
        run.log({"step": epoch}, step=epoch)
        run.report(score=epoch / 10)
        run.save(epoch=epoch)


def return_after_two(run: Run) -> None:
    for epoch in run.epochs():
        run.report(score=epoch / 10)
        run.save(epoch=epoch)
        if epoch == 2:
            return


def return_at_the_start_of_three(run: Run) -> None:
    for epoch in run.epochs():
        if epoch == 3:
            return
        run.report(score=epoch / 10)
        run.save(epoch=epoch)


def return_after_reporting_three(run: Run) -> None:
    for epoch in run.epochs():
        run.report(score=epoch / 10)
        if epoch == 3:
            return
        run.save(epoch=epoch)


def evaluate_more_than_fits_numpy(run: Run) -> None:
    for _ in run.epochs():
        np.empty(2**58)


def evaluate_more_than_fits_torch(run: Run) -> None:
    for _ in run.epochs():
        torch.empty(2**60)


def evaluate_more_than_fits_a_gpu(run: Run) -> None:
    for _ in run.epochs():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")


def lose_another_rank(run: Run) -> None:
    raise RuntimeError(
        "Got the following error: Connection closed by peer\n\nAt:\n  /torch/default_hooks.py(31): <lambda>\n"
    )


class Unsayable(Exception):
    """Its message is made of what nobody has set."""

    def __str__(self) -> str:
        return str(self.what)


def raise_what_cannot_be_said(run: Run) -> None:
    raise Unsayable


def return_at_once(run: Run) -> None:
    pass


def return_without_saving(run: Run) -> None:
    for _ in run.epochs():
        run.report(score=0.5)
        return


def fail_in_three(run: Run) -> None:
    for epoch in run.epochs():
        if epoch == 3:
            raise ValueError("a shape that nobody expected")  # the user's line
        run.report(score=epoch / 10)
        run.save(epoch=epoch)


def diverge_in_two(run: Run) -> None:
    for epoch in run.epochs():
        run.report(score=math.nan if epoch == 2 else 0.5)
        run.save(epoch=epoch)


def report_something_else(run: Run) -> None:
    for epoch in run.epochs():
        run.report(loss=0.5)
        run.save(epoch=epoch)


def never_save(run: Run) -> None:
    for _ in run.epochs():
        run.report(score=0.5)


def restore_too_much(run: Run) -> None:
    run.restore(epoch=0, momentum=0)


def save_a_lock(run: Run) -> None:
    run.save(lock=object())


def lose_the_store(run: Run) -> None:
    assert run.store.folder is not None
    while run._writer.appender._spare is None:  # the journal's first log segment, made by another thread
        time.sleep(0.01)
    run.store.folder.rename(run.store.folder.parent / "unmounted")
    run.store.folder.write_text("not a folder")
    run.save(epoch=1)
