"""The main function of a trial's process: run the trainable, ask the platform at each rung, and report how
the attempt ended.
"""

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

_PLACE_IN_CALLBACK = "\n\nAt:\n"  # pybind11's
_FINAL = (Diverged, ObjectiveMissing, CheckpointMissing, CheckpointMismatch, InvalidInput)


class Channel(Protocol):
    """The connection to the platform: one end of a pipe, or a mailbox in the store."""

    def send(self, message: Message, /) -> None: ...

    def recv(self) -> Granted:
        """The answer to the message that was sent last."""


@runtime_checkable
class HeedingChannel(Channel, Protocol):
    """A connection by which the platform can ask for the trial back.

    A pipe is none: there, it sends a signal.
    """

    def heeding(self, ask_back: Callable[[], object]) -> AbstractContextManager[None]:
        """In this block, call ``ask_back``, from any thread, when the platform wants the trial's place."""


class Platform:
    """The controller of a trial that the platform runs: it asks the platform for each decision.

    Args:
        leave: ends the process when the other end of the pipe is closed. Raising instead would let the
            trainable handle it.

    Attributes:
        complete: whether the platform has answered that the trial is complete.
    """

    def __init__(self, channel: Channel, granted: int, leave: Callable[[], NoReturn]) -> None:
        self.granted = granted
        self._channel = channel
        self._leave = leave
        self.complete = False

    def reached(
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
    """The main function of a trial's process.

    Args:
        context: the trial.
        trainable: ``module:function``.
        granted: epochs to train before asking the platform.
        channel: to the platform.
        threads: CPU threads that the trial may use.

    Raises:
        SystemExit: with status 143, after a SIGTERM, when the checkpoint is saved. No message is sent: the
            sender of the signal knows.
    """
    if parent_process() and sys.platform == "linux":
        # A child of a fork server starts children by another one, which outlives it with its data loaders. A
        # script's children, and a rank's, are forked.
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
    """Run the trainable and give how the attempt ended; as :func:`run_trial`, which sends that.

    Args:
        join: gives the ranks among which this process is one. The channel is used by rank 0.
    """
    # Ctrl-C reaches the whole process group, but it is the worker that then decides about the trial and ends
    # this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signals.listen(even_ignored=True)
    run: Run | None = None
    ended: Message
    try:
        train = import_function("trainable", trainable)
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(threads)
        controller = Platform(channel, granted, lambda: _leave(run))
        run = open_trial(context, controller, join())
        _stop_with_parent(run)
        with (
            channel.heeding(run.ask_back)
            if run.rank == 0 and isinstance(channel, HeedingChannel)
            else contextlib.nullcontext()
        ):
            train(run)
            run.end()
        _end_if_stopping(run)
        ended = _ended(run, controller, context)
        run.finish("paused" if isinstance(ended, Stopped) and not controller.complete else "finished")
    except Exception as error:  # noqa: BLE001  # whatever the trainable raises is the attempt's result
        if (parent := parent_process()) and not parent.is_alive():
            _leave(run)  # this may be the only reason why it raised: the terminal or a pipe is closed
        is_final = _is_final(error)
        if run and not is_final:
            _end_if_stopping(run)  # a SIGTERM that also went to its children makes data loaders raise
        if isinstance(error, StoreUnavailable):  # not the trial's own fault
            ended = Interrupted(f"the store was unavailable: {error}")
        else:
            newest = run.checkpoint.digest if run and run.checkpoint else None
            if is_out_of_memory(error) and not isinstance(error, OutOfMemory | MicroBatchTooLarge):
                error.add_note(_what_was_allocated(run))
            ended = Raised(_without_own_frames(error), is_final, newest)
        if run:
            with contextlib.suppress(StoreError):  # whatever the store does, the platform gets the message
                run.finish("failed")
    return ended


def _is_final(error: Exception) -> bool:
    """Whether an error would happen again in another attempt, so that the platform does not try its trial
    again.
    """
    if isinstance(error, MicroBatchTooLarge):
        return False
    return isinstance(error, _FINAL) or is_out_of_memory(error)


def _what_was_allocated(run: Run | None) -> str:
    rank = run.rank if run else int(os.environ.get("RANK", "0"))
    device = None
    if run and "torch" in sys.modules:
        with contextlib.suppress(Exception):  # a GPU whose memory was not enough to begin with it
            device = run.device
    return (
        f"rank {rank} ran out of memory: {describe_memory(device)}. It would again, so the trial is not "
        "tried again: load or compute less at once. (out_of_memory='halve' of run.distribute is for what "
        "training.step computes)"
    )


def _ended(run: Run, controller: Platform, context: TrialContext) -> Stopped | ReturnedEarly:
    if run.rank or run.epoch >= controller.granted:
        return Stopped()
    if run.unsaved is not None:
        raise run.unsaved
    saved = run.checkpoint
    if saved is None:
        reports = ", ".join(f"{rule.metric}=…" for rule in context.objectives)
        raise ObjectiveMissing(
            f"the trainable returned at epoch {run.epoch} of {controller.granted} without "
            f"run.report({reports}) and run.save(…) "
            "in an epoch of its own; loop over run.epochs() and call both in every epoch"
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
    if parent := parent_process():

        def watch() -> None:
            parent.join()
            _leave(run)

        threading.Thread(target=watch, name="halving-parent-watch", daemon=True).start()


def _leave(run: Run | None) -> NoReturn:
    """End this process without finishing the run: the worker has died, and another one will continue the
    trial.
    """
    if run:
        run.flush()
    os._exit(1)  # a normal exit would finish the run


def _without_own_frames(error: BaseException) -> str:
    """The traceback, beginning with the trainable's first frame.

    Its last line says what happened. PyTorch's errors of a callback in C++, such as DDP's when another rank
    is gone, have where the callback was behind it; that is left out.
    """
    trace = (
        error.__traceback__.tb_next
        if error.__traceback__ and error.__traceback__.tb_next
        else error.__traceback__
    )
    text = "".join(traceback.format_exception(type(error), error, trace)).strip()
    said = message_of(error)
    what, at, _ = said.partition(_PLACE_IN_CALLBACK)
    return text.replace(said.strip(), what.strip()) if at else text
