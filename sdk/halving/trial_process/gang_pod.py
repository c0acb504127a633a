"""A pod of a gang, which waits until the worker has formed the gang, and then runs the ranks of its node.

Rank 0 communicates with the worker through the mailbox, as every trial does. Each pod writes how its ranks
ended to the gang's rendezvous store, because the worker must find the one of many ends that was the reason.
"""

import importlib
import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from halving.distributed.hang import Hang
from halving.errors import InvalidInput
from halving.run import signals
from halving.trial.context import TrialContext
from halving.trial.gang import (
    BEAT_SECONDS,
    FORMATION,
    HANG,
    GangPlace,
    beat_key,
    end_to_bytes,
    ended_key,
    here_key,
    hung_key,
    is_wrong,
    signalled_key,
)
from halving.trial_process.gang import attend as attend_ranks
from halving.trial_process.gang import guarding, run_rank
from halving.trial_process.gang_folder import gang_folder
from halving.trial_process.main import Channel

if TYPE_CHECKING:
    from torch.distributed import TCPStore
    from torch.distributed.elastic.rendezvous import RendezvousHandler

_CONNECT_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_LAST_BEAT_SECONDS = 2.0  # for the store to take the last beat
_WORKER_LOST_SECONDS = 10.0  # without the store, before the ranks must save a checkpoint


def attend(
    place: GangPlace,
    context: TrialContext,
    trainable: str,
    granted: int,
    channel: Channel,
    threads: int,
    processes: int,
) -> None:
    """Run a pod of a gang.

    Args:
        place: the place of this pod.
        context, trainable, granted, channel, threads, processes: as for
            :func:`halving.trial_process.gang.run_gang`; ``processes`` are those of this node.

    Raises:
        SystemExit: the ranks ended wrongly; with status 143 after a SIGTERM, when the checkpoint is saved.
        torch.distributed.DistError: the worker's store cannot be reached.
    """
    with suppress(Exception):  # Each rank reports an error of the import by itself.
        importlib.import_module(trainable.partition(":")[0])  # The ranks are forked after it.
    store = _connect(place)
    pods = _formation(store, place)
    beats = _Beats(_connect(place), place.pod)
    beats.start()
    with gang_folder() as folder, guarding() as guardian:
        arguments = (context, trainable, granted, channel, threads, str(folder), guardian)
        rendezvous = rendezvous_in(store, place, pods)
        message = attend_ranks(
            run_rank,
            arguments,
            processes,
            rendezvous,
            folder,
            on_sigterm=beats.has_sigterm.set,
            on_hang=partial(_tell_of_hang, store, place.pod),
            hang_elsewhere=lambda: beats.hang,
        )
    beats.close()  # An interpreter that ends while a thread waits in the store's C++ may hang.
    if pods[0] == place.pod and message is not None and not is_wrong(message):
        channel.send(message)
    with suppress(RuntimeError):
        # torch raises it if the store is gone with the worker, and then nobody needs the end.
        if beats.has_sigterm.is_set():
            store.set(signalled_key(place.pod), "")
        store.set(ended_key(place.pod), end_to_bytes(message).decode())
    if message is None:
        sys.exit(signals.STATUS)
    if is_wrong(message):
        sys.exit(1)


def _tell_of_hang(store: "TCPStore", pod: str, hang: Hang) -> None:
    """Report a hang to the worker, and to the other pods, whose ranks may be the missing ones."""
    with suppress(RuntimeError):  # The worker is gone.
        store.set(hung_key(pod), hang.to_text())
        store.set(HANG, hang.to_text())


def rendezvous_in(store: "TCPStore", place: GangPlace, pods: list[str]) -> "RendezvousHandler":
    """The rendezvous of a gang with known members, in the worker's store, so that any of them may end first.

    torchrun's own rendezvous negotiates its members with pickles; its static one has the store in the first
    member.
    """
    from torch.distributed import PrefixStore
    from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

    class Formed(RendezvousHandler):
        def get_backend(self) -> str:
            return "static"

        @property
        def use_agent_store(self) -> bool:
            return True

        def next_rendezvous(self) -> RendezvousInfo:
            own = RendezvousStoreInfo(place.host, place.port)
            return RendezvousInfo(PrefixStore("ranks", store), pods.index(place.pod), len(pods), own)

        def is_closed(self) -> bool:
            return False

        def set_closed(self) -> None:
            pass

        def num_nodes_waiting(self) -> int:
            return 0

        def get_run_id(self) -> str:
            return "trial"

        def shutdown(self) -> bool:
            return True

    return Formed()


def _connect(place: GangPlace) -> "TCPStore":
    from torch.distributed import TCPStore

    timeout = timedelta(seconds=_CONNECT_SECONDS)
    return TCPStore(place.host, place.port, is_master=False, wait_for_workers=False, timeout=timeout)


def _formation(store: "TCPStore", place: GangPlace) -> list[str]:
    """Wait until the gang is formed with this pod; one that is left out waits until it is deleted."""
    store.set(here_key(place.pod), "")
    while True:
        if store.check([FORMATION]):
            pods: Any = json.loads(store.get(FORMATION))
            if place.pod in pods:
                return list(pods)
        time.sleep(_LOOK_SECONDS)


class _Beats(threading.Thread):
    """Tells the worker twice a second that this node is alive.

    If the worker is gone, the ranks save a checkpoint and end.

    Attributes:
        has_sigterm: set when a SIGTERM has come, which is then reported at once.
        hang: a collective that a pod of the gang has given up.
    """

    hang: Hang | None = None

    def __init__(self, store: "TCPStore", pod: str) -> None:
        super().__init__(name="halving-gang-beats", daemon=True)
        self.has_sigterm = threading.Event()
        self._store = store
        self._pod = pod
        self._over = threading.Event()

    def run(self) -> None:
        import torch.distributed as dist

        heard = time.monotonic()
        while not self._over.is_set():
            is_stopping = self.has_sigterm.is_set()
            try:
                self._store.add(beat_key(self._pod), 1)
                if is_stopping:
                    self._store.set(signalled_key(self._pod), "")
                if self.hang is None and self._store.check([HANG]):
                    with suppress(InvalidInput):  # The other image has another version of the SDK.
                        self.hang = Hang.from_text(self._store.get(HANG).decode())
                heard = time.monotonic()
            except dist.DistError:
                if time.monotonic() - heard > _WORKER_LOST_SECONDS:
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
            next_event = self._over if is_stopping else self.has_sigterm
            next_event.wait(BEAT_SECONDS)

    def close(self) -> None:
        self._over.set()
        self.join(_LAST_BEAT_SECONDS)
