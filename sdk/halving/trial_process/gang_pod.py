"""A pod of a gang: it waits until its trial's worker names the pods that form the gang, and runs the ranks of
its node to their end.

Rank 0 speaks with the worker through the mailbox, as every trial does. How the ranks of a node ended the pod
says in the gang's rendezvous store, because of many pods that end the worker has to find the one that was the
reason.
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
    beat,
    end_to_bytes,
    ended,
    here,
    hung,
    is_wrong,
    signalled,
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
_LAST_BEAT_SECONDS = 2.0  # for the store to take it
_WORKER_LOST_SECONDS = 10.0  # without the store, until the ranks are asked to save a checkpoint


def attend(
    place: GangPlace,
    context: TrialContext,
    trainable: str,
    granted: int,
    channel: Channel,
    threads: int,
    processes: int,
) -> None:
    """The main function of a gang's pod.

    Args:
        place: of this pod.
        context, trainable, granted, channel, threads, processes: as for
            :func:`halving.trial_process.gang.run_gang`; ``processes`` of this node.

    Raises:
        SystemExit: the ranks ended wrongly; with status 143 after a SIGTERM, when the checkpoint is saved.
        torch.distributed.DistError: the worker's store cannot be reached.
    """
    with suppress(Exception):  # what cannot be imported each rank says by itself
        importlib.import_module(trainable.partition(":")[0])  # before the ranks are forked
    store = _connected(place)
    pods = _formation(store, place)
    beats = _Beats(_connected(place), place.pod)
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
            on_sigterm=beats.asked.set,
            on_hang=partial(_tell_of_hang, store, place.pod),
            hang_elsewhere=lambda: beats.hang,
        )
    beats.close()  # an interpreter that ends while a thread waits in the store's C++ may hang
    if pods[0] == place.pod and message is not None and not is_wrong(message):
        channel.send(message)
    with suppress(RuntimeError):
        # torch's errors of a store that is gone with the worker: nobody is there to be told
        if beats.asked.is_set():
            store.set(signalled(place.pod), "")
        store.set(ended(place.pod), end_to_bytes(message).decode())
    if message is None:
        sys.exit(signals.STATUS)
    if is_wrong(message):
        sys.exit(1)


def _tell_of_hang(store: "TCPStore", pod: str, hang: Hang) -> None:
    """Tell the worker, and the other pods, whose ranks may be those that did not come."""
    with suppress(RuntimeError):  # the worker is gone
        store.set(hung(pod), hang.to_text())
        store.set(HANG, hang.to_text())


def rendezvous_in(store: "TCPStore", place: GangPlace, pods: list[str]) -> "RendezvousHandler":
    """The rendezvous of a gang whose members are known: in the worker's store, so that none of them has to
    outlive the others.

    torchrun's own agrees on its members by itself, with pickles; its static one has the store in the first of
    them.
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


def _connected(place: GangPlace) -> "TCPStore":
    from torch.distributed import TCPStore

    timeout = timedelta(seconds=_CONNECT_SECONDS)
    return TCPStore(place.host, place.port, is_master=False, wait_for_workers=False, timeout=timeout)


def _formation(store: "TCPStore", place: GangPlace) -> list[str]:
    """Wait until the gang is formed with this pod; one that is left out waits until it is deleted."""
    store.set(here(place.pod), "")
    while True:
        if store.check([FORMATION]):
            pods: Any = json.loads(store.get(FORMATION))
            if place.pod in pods:
                return list(pods)
        time.sleep(_LOOK_SECONDS)


class _Beats(threading.Thread):
    """Tells the worker twice a second that this node is there.

    Where the worker is gone, the ranks save a checkpoint and end.

    Attributes:
        asked: set when a SIGTERM has come, which the worker hears of at once.
        hang: a collective that a pod of the gang has given up.
    """

    hang: Hang | None = None

    def __init__(self, store: "TCPStore", pod: str) -> None:
        super().__init__(name="halving-gang-beats", daemon=True)
        self.asked = threading.Event()
        self._store = store
        self._pod = pod
        self._over = threading.Event()

    def run(self) -> None:
        import torch.distributed as dist

        heard = time.monotonic()
        while not self._over.is_set():
            asked = self.asked.is_set()
            try:
                self._store.add(beat(self._pod), 1)
                if asked:
                    self._store.set(signalled(self._pod), "")
                if self.hang is None and self._store.check([HANG]):
                    with suppress(InvalidInput):  # of an image with another version of the SDK
                        self.hang = Hang.from_text(self._store.get(HANG).decode())
                heard = time.monotonic()
            except dist.DistError:
                if time.monotonic() - heard > _WORKER_LOST_SECONDS:
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
            (self._over if asked else self.asked).wait(BEAT_SECONDS)

    def close(self) -> None:
        self._over.set()
        self.join(_LAST_BEAT_SECONDS)
