"""A trial's process, which runs the trainable, asks the platform at each rung, and reports its end."""

import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing import parent_process, set_start_method
from typing import NoReturn, Protocol, runtime_checkable

from halving.distributed.out_of_memory import describe_memory, is_out_of_memory
from halving.distributed.ranks import ALONE, Ranks
from halving.errors import (
    CheckpointMismatch,
    CheckpointMissing,
    Diverged,
    InvalidInput,
    MicroBatchTooLarge,
    ObjectiveMissing,
    OutOfMemory,
    StoreError,
    StoreUnavailable,
    message_of,
)
from halving.run import signals
from halving.run.init import open_trial
from halving.run.run import Run
from halving.trial.context import TrialContext
from halving.trial.import_string import import_function
from halving.trial.messages import Granted, Interrupted, Message, Raised, ReachedRung, ReturnedEarly, Stopped
from halving.trial.objectives import Tallies

_PLACE_IN_CALLBACK = "\n\nAt:\n"  # as pybind11 writes it
_FINAL = (Diverged, ObjectiveMissing, CheckpointMissing, CheckpointMismatch, InvalidInput)


class Channel(Protocol):
    """The connection to the platform: one end of a pipe, or a mailbox in the store."""

    def send(self, message: Message, /) -> None: ...

    def recv(self) -> Granted:
        """Wait for the answer to the last message."""


@runtime_checkable
class HeedingChannel(Channel, Protocol):
    """A connection by which the platform can ask for the trial back.

    A pipe is none, because there the platform sends a signal.
    """

    def heeding(self, ask_back: Callable[[], object]) -> AbstractContextManager[None]:
        """Within the block, call ``ask_back`` from any thread when the platform wants the trial's place."""


class Platform:
    """A controller that asks the platform for each decision.

    Args:
        leave: ends the process when the other end of the pipe is closed, because the trainable could catch an
            exception.

    Attributes:
        complete: whether the platform has answered that the trial is complete.
    """

    def __init__(self, channel: Channel, granted: int, leave: Callable[[], NoReturn]) -> None:
        self.granted = granted
        self._channel = channel
        self._leave = leave
        self.complete = False

    def report_rung(
        self, epoch: int, values: dict[str, float], checkpoint: str, best_checkpoint: str | None
    ) -> int:
        try:
            self._channel.send(ReachedRung(epoch, values, checkpoint, best_checkpoint))
            answer = self._channel.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._leave()
        self.complete = answer.complete
        return answer.epochs


def run_trial(context: TrialContext, trainable: str, granted: int, channel: Channel, threads: int) -> None:
    """Run a trial in its process, and send the platform how it ended.

    Args:
        context: the trial.
        trainable: ``module:function``.
        granted: epochs to train before asking the platform.
        channel: the connection to the platform.
        threads: CPU threads that the trial may use.

    Raises:
        SystemExit: with status 143, after a SIGTERM, when the checkpoint is saved. No message is sent,
            because the sender of the signal knows.
    """
    if parent_process() and sys.platform == "linux":
        # A child of a fork server would start children by another fork server, which outlives it with its
        # data loaders. So they are forked, as those of a script or a rank.
        set_start_method("fork", force=True)
    channel.send(train_trial(context, trainable, granted, channel, threads))


def train_trial(
    context: TrialContext,
    trainable: str,
    granted: int,
    channel: Channel,
    threads: int,
    join: Callable[[], Ranks] = lambda: ALONE,
) -> Message:
    """Run the trainable and return how the attempt ended; :func:`run_trial` describes the arguments.

    Args:
        join: returns the ranks of which this process is one. Only rank 0 uses the channel.
    """
    # Ctrl-C reaches the whole process group, but the worker decides about the trial and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.listen(even_ignored=True)
    run: Run | None = None
    ended: Message
    try:
        train = import_function("trainable", trainable)
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(threads)
        controller = Platform(channel, granted, lambda: _leave(run))
        run = open_trial(context, controller, join())
        _stop_with_parent(run)
        heeding: AbstractContextManager[None] = contextlib.nullcontext()
        if run.rank == 0 and isinstance(channel, HeedingChannel):
            heeding = channel.heeding(run.ask_back)
        with heeding:
            train(run)
            run.end()
        _end_if_stopping(run)
        ended = _end_message(run, controller, context)
        is_paused = isinstance(ended, Stopped) and not controller.complete
        run.finish("paused" if is_paused else "finished")
    except Exception as error:  # noqa: BLE001
        # Any error of the trainable is the attempt's result.
        parent = parent_process()
        if parent and not parent.is_alive():
            _leave(run)  # The error may only mean that the terminal or a pipe is closed.
        is_final = _is_final(error)
        if run and not is_final:
            _end_if_stopping(run)  # Data loaders raise after a SIGTERM that also went to them.
        if isinstance(error, StoreUnavailable):  # It is not the trial's own fault.
            ended = Interrupted(f"the store was unavailable: {error}")
        else:
            newest = None
            if run and run.checkpoint:
                newest = run.checkpoint.digest
            if is_out_of_memory(error) and not isinstance(error, OutOfMemory | MicroBatchTooLarge):
                error.add_note(_what_was_allocated(run))
            ended = Raised(_without_own_frames(error), is_final, newest)
        if run:
            with contextlib.suppress(StoreError):  # The platform gets the message in any case.
                run.finish("failed")
    return ended


def _is_final(error: Exception) -> bool:
    """Whether an error would happen again in another attempt, so that the trial is not tried again."""
    if isinstance(error, MicroBatchTooLarge):
        return False
    return isinstance(error, _FINAL) or is_out_of_memory(error)


def _what_was_allocated(run: Run | None) -> str:
    rank = run.rank if run else int(os.environ.get("RANK", "0"))
    device = None
    if run and "torch" in sys.modules:
        with contextlib.suppress(Exception):  # The GPU's memory may not suffice even to use it.
            device = run.device
    return (
        f"rank {rank} ran out of memory: {describe_memory(device)}. It would again, so the trial is "
        "not tried again: load or compute less at once. (out_of_memory='halve' of run.distribute is for what "
        "training.step computes)"
    )


def _end_message(run: Run, controller: Platform, context: TrialContext) -> Stopped | ReturnedEarly:
    if run.rank or run.epoch >= controller.granted:
        return Stopped()
    if run.unsaved is not None:
        raise run.unsaved
    saved = run.checkpoint
    if saved is None:
        reports = ", ".join(f"{rule.metric}=…" for rule in context.objectives)
        raise ObjectiveMissing(
            f"the trainable returned at epoch {run.epoch} of {controller.granted} without "
            f"run.report({reports}) and run.save(…) in an epoch of its own; loop over run.epochs() and call "
            "both in every epoch"
        )
    tallies = Tallies(context.objectives, context.bounded, saved.tallies)
    return ReturnedEarly(
        saved.epoch, tallies.values(saved.epoch, saved.reported), saved.digest, tallies.best_checkpoint
    )


def _end_if_stopping(run: Run) -> None:
    if run.is_stopping:
        run.finish("terminated")
        raise SystemExit(signals.STATUS)


def _stop_with_parent(run: Run) -> None:
    """End this process when its worker dies."""
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            _leave(run)

        threading.Thread(target=watch, name="halving-parent-watch", daemon=True).start()


def _leave(run: Run | None) -> NoReturn:
    """End this process without finishing the run, because another worker will continue the trial."""
    if run:
        run.flush()
    os._exit(1)  # A normal exit would finish the run.


def _without_own_frames(error: BaseException) -> str:
    """The traceback from the trainable's first frame on, with the error in its last line.

    PyTorch's errors of a callback in C++, such as DDP's when another rank is gone, have the callback's place
    behind the message; that is left out.
    """
    trace = error.__traceback__
    if trace and trace.tb_next:
        trace = trace.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace)).strip()
    message = message_of(error)
    short, mark, _ = message.partition(_PLACE_IN_CALLBACK)
    if not mark:
        return text
    return text.replace(message.strip(), short.strip())
