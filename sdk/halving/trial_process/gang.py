"""The processes of a trial that trains in several: torchrun's agent, and the ranks that it starts on a node.

A gang is one attempt: any rank that ends wrongly ends all, and the platform begins the next attempt from the
last checkpoint. So the agent restarts nothing. The ranks are forked from the agent's process, which was
itself forked from one that has imported the trainable.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing import parent_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.distributed.hang import Hang
from halving.distributed.joining import TIMEOUT_SECONDS, join, leave
from halving.distributed.ranks import Gang
from halving.distributed.watch import Watch
from halving.records.memory_kills import MemoryKills
from halving.run import signals
from halving.trial.context import TrialContext
from halving.trial.messages import Interrupted, Message, Raised
from halving.trial_process.gang_folder import gang_folder
from halving.trial_process.guardian import Guardian, be_killed_with_parent
from halving.trial_process.main import Channel, train_trial
from halving.trial_process.rank_end import RankEnd, find_end
from halving.trial_process.rank_stacks import answer_to_agent, stacks_of

if TYPE_CHECKING:
    from torch.distributed.elastic.rendezvous import RendezvousHandler

# Rank 0 may write its last points and its end for so long, when another rank has ended wrongly. With an
# unavailable store it takes all of this time, because the next attempt must train within 15 s even so; it
# finds the points in the journal.
_LAST_SECONDS = 10.0
_HUNG_SECONDS = 1.0  # the same after a hung collective, during which the background thread has written them
_GIVEN_UP_SECONDS = 1.5  # after a collective's timeout, for the ranks that gave it up to end by themselves
_ORPHANED_SECONDS = 10.0  # for rank 0 to flush its points and end by itself, when its agent has died
_BARRIER_SECONDS = 20.0  # for the agents of other nodes to end, after this node's ranks
_MONITOR_SECONDS = 0.1
_RENDEZVOUS_SECONDS = 60


def run_gang(
    context: TrialContext, trainable: str, granted: int, channel: Channel, threads: int, processes: int
) -> None:
    """Run the ranks of a gang on one machine, and tell the platform how they ended.

    Args:
        context, trainable, granted, channel: as for :func:`halving.trial_process.main.run_trial`.
        threads: CPU threads of each rank.
        processes: the number of ranks.

    Raises:
        SystemExit: with status 143, after a SIGTERM, when the checkpoint is saved.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the worker.
    _end_with_parent()
    with gang_folder() as folder, guarding() as guardian:
        arguments = (context, trainable, granted, channel, threads, str(folder), guardian)
        message = attend(run_rank, arguments, processes, rendezvous_here(), folder)
    if message is None:
        raise SystemExit(signals.STATUS)
    channel.send(message)


@contextlib.contextmanager
def guarding() -> Iterator[Guardian]:
    """Provide a guardian for the agent's ranks within the block; rank 0 registers itself with it."""
    guardian = Guardian(_ORPHANED_SECONDS)
    try:
        yield guardian
    finally:
        guardian.end()


def rendezvous_here() -> "RendezvousHandler":
    """The rendezvous of one node, on a port that is free."""
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

    # The rendezvous uses this server, too.
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, multi_tenant=True)
    return StaticTCPRendezvous("127.0.0.1", store.port, 0, 1, "trial", _RENDEZVOUS_SECONDS)


def attend(
    entry: Callable[..., None],
    arguments: tuple[Any, ...],
    processes: int,
    rendezvous: "RendezvousHandler",
    folder: Path,
    *,
    on_sigterm: Callable[[], object] = lambda: None,
    on_hang: Callable[[Hang], object] = lambda _: None,
    hang_elsewhere: Callable[[], Hang | None] = lambda: None,
) -> Message | None:
    """Run this node's ranks under torchrun's agent, and return how they ended; None after a SIGTERM.

    A SIGTERM is passed on to the ranks.

    Args:
        entry, arguments: the main function of each rank, in whose environment torchrun's variables are set,
            and its arguments.
        rendezvous: the rendezvous of the agents of all nodes.
        folder: the folder in which ranks write how they ended.
        on_sigterm: called when a SIGTERM comes.
        on_hang: called when a collective is given up, and once more with the stacks of this node's ranks.
        hang_elsewhere: returns a collective that the ranks of another node have given up; then those of this
            node are given up, too.
    """
    for name in ("torch.distributed.elastic", "torch.distributed.run"):
        # The error of a rank is the attempt's end, and must not be logged as well.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    agent = _make_agent(entry, arguments, processes, rendezvous, folder, on_hang, hang_elsewhere)
    memory = MemoryKills()
    raised: list[BaseException] = []

    def run() -> None:
        try:
            agent.run()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)  # The main thread raises it below.

    agent_process = os.getpid()

    def pass_on(number: int, _: Any) -> None:
        if os.getpid() != agent_process:
            # This is a rank that has just been forked, and has no handler of its own yet.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        on_sigterm()
        agent.has_sigterm = True
        agent.waiting.append(number)

    # The agent runs in a thread, where it handles no signals; in the main thread a SIGTERM would have it end
    # the ranks.
    thread = threading.Thread(target=run, name="halving-agent")
    signal.signal(signal.SIGTERM, pass_on)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return find_end(folder, agent.codes, agent.hang, memory, has_sigterm=agent.has_sigterm)


def run_rank(
    context: TrialContext,
    trainable: str,
    granted: int,
    channel: Channel,
    threads: int,
    folder: str,
    guardian: Guardian,
) -> None:
    """Train in a rank's process, and write to ``folder`` how it ended.

    Raises:
        SystemExit: it ended wrongly.
    """
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # The fork has inherited the agent's handler.
    # Without the variable, Accelerate would set torch's threads to 1.
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    rank = int(os.environ["RANK"])
    if rank:
        be_killed_with_parent()
    else:
        guardian.watch(os.getpid())
    answer_to_agent(Path(folder), rank)
    timeout = context.resources.get("collective_timeout_seconds") or TIMEOUT_SECONDS
    gangs: list[Gang] = []

    def join_gang() -> Gang:
        gang = join(timeout)
        gang.watch = Watch(gang, gang.connect(), Path(folder))
        gangs.append(gang)
        return gang

    try:
        message = train_trial(context, trainable, granted, channel, threads, join_gang)
    except SystemExit as ended:
        watch = gangs[0].watch if gangs else None
        if watch is not None:
            watch.close()
        if ended.code == signals.STATUS:
            RankEnd(rank, time.monotonic(), None).write(Path(folder))
            return
        message = Raised(
            f"the trainable has ended its process by sys.exit({ended.code!r})", final=False, checkpoint=None
        )
    watch = gangs[0].watch if gangs else None
    if watch is not None:
        if isinstance(message, Raised):
            watch.settle()
        watch.close()
    is_repeat = bool(gangs and gangs[0].raised_error_of_rank_0)
    RankEnd(rank, time.monotonic(), message, is_repeat).write(Path(folder))
    if isinstance(message, Raised | Interrupted):
        sys.exit(1)
    leave()


def _make_agent(
    entry: Callable[..., None],
    arguments: tuple[Any, ...],
    processes: int,
    rendezvous: "RendezvousHandler",
    folder: Path,
    on_hang: Callable[[Hang], object],
    hang_elsewhere: Callable[[], Hang | None],
) -> Any:
    from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec, WorkerState
    from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

    class Agent(LocalElasticAgent):
        """torchrun's agent, except that it kills the ranks of a broken gang.

        A SIGTERM would only ask them to save at the next step.

        Attributes:
            codes: the exit status of each rank when the gang's end was noticed; None while it runs.
            hang: the collective that hung, if that was the reason.
            has_sigterm: whether a SIGTERM has come.
            waiting: signals to pass on as soon as the ranks exist.
        """

        codes: Mapping[int, int | None] = {}
        hang: Hang | None = None
        has_sigterm = False

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.waiting: list[int] = []

        def _monitor_workers(self, worker_group: Any) -> Any:
            context = self._pcontext
            if context is None:
                return super()._monitor_workers(worker_group)
            while self.waiting:
                _send(self.waiting.pop(), context.pids().values())
            ranks = [worker.global_rank for worker in worker_group.workers]
            # This attribute has processes that run a function.
            processes = dict(zip(ranks, context._pc.processes, strict=True))  # type: ignore[attr-defined]
            codes = {rank: process.exitcode for rank, process in processes.items()}
            # A rank that has returned from its main function waits for the others. So one that has ended,
            # whatever its status, has ended too early.
            broken = any(code is not None for code in codes.values())
            elsewhere = hang_elsewhere()
            if broken or elsewhere is not None or _is_given_up(folder):
                self.hang = _hang_of(folder, codes, elsewhere)
            if self.hang is not None:
                on_hang(self.hang)
                _find_silent(self.hang, processes, folder)
                on_hang(self.hang)
            if broken or self.hang is not None:
                self.codes = codes
                seconds = _LAST_SECONDS if self.hang is None else _HUNG_SECONDS
                _end(processes, seconds)
                return RunResult(WorkerState.FAILED)
            return super()._monitor_workers(worker_group)

    spec = WorkerSpec(
        "trial",
        processes,
        rendezvous,
        entrypoint=entry,
        args=arguments,
        max_restarts=0,
        monitor_interval=_MONITOR_SECONDS,
    )
    return Agent(spec, DefaultLogsSpecs(), start_method="fork", exit_barrier_timeout=_BARRIER_SECONDS)


def _end(processes: Mapping[int, Any], within: float) -> None:
    """End the ranks of a broken gang; rank 0 gets some time to write its last points."""
    for rank, process in processes.items():
        if rank and process.is_alive():
            process.kill()
    if 0 in processes:
        processes[0].join(within)
        processes[0].kill()
    for process in processes.values():
        process.join()


def _send(number: int, pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_given_up(folder: Path) -> bool:
    """Whether ranks have waited in a collective for longer than its timeout, and have not ended.

    They may be waiting for a save in flight, which cannot end either.
    """
    for path in folder.glob("hang-*.json"):
        with contextlib.suppress(FileNotFoundError):  # The other ranks have come after all.
            hang = Hang.from_text(path.read_text())
            if time.time() > hang.since + hang.timeout + _GIVEN_UP_SECONDS:
                return True
    return False


def _hang_of(folder: Path, codes: Mapping[int, int | None], elsewhere: Hang | None) -> Hang | None:
    """The hung collective that has broken the gang, by the ranks that waited in it; None for other reasons.

    NCCL ends a rank that waits too long by SIGABRT; gloo raises in it.
    """
    hangs = []
    for path in sorted(folder.glob("hang-*.json")):
        with contextlib.suppress(FileNotFoundError):  # The other ranks have come after all.
            hangs.append(Hang.from_text(path.read_text()))
    if elsewhere is not None:
        hangs.append(elsewhere)
    ended = [rank for rank, code in codes.items() if code]
    for hang in hangs:
        # Otherwise a rank that did not come has ended by itself, or a rank was killed.
        if all(rank in hang.waiting and codes[rank] in (1, -signal.SIGABRT) for rank in ended):
            return hang
    return None


def _find_silent(hang: Hang, processes: Mapping[int, Any], folder: Path) -> None:
    """Add the stacks of this node's silent ranks to a hang."""
    silent = [rank for rank, stack in hang.stacks.items() if stack is None and rank in processes]
    hang.stacks.update(
        stacks_of({rank: processes[rank].pid for rank in silent if processes[rank].is_alive()}, folder)
    )


def _end_with_parent() -> None:
    """End this process when its worker dies; its ranks end with it."""
    parent = parent_process()
    if parent is not None:

        def watch() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=watch, name="halving-parent-watch", daemon=True).start()
