"""The rendezvous store of a gang; it runs in the trial's worker, so the loss of a pod does not end it."""

import json
import logging
import socket
import time
from urllib.parse import urlsplit

from halving.distributed.hang import Hang
from halving.errors import InvalidInput
from halving.trial import gang
from halving.trial.messages import Message, Raised
from resources.execution.kubernetes import api

_MAX_BYTES = 1_000_000  # of a pod's report on its end or on a collective

_log = logging.getLogger(__name__)


class GangStore:
    """A ``TCPStore`` whose server is a thread of this process.

    Whatever pods write into it is only read as text, numbers and JSON.

    Attributes:
        host, port: the address at which pods reach it.
    """

    def __init__(self) -> None:
        from torch.distributed import TCPStore

        self.host = own_address()
        self._store = TCPStore(self.host, 0, is_master=True, wait_for_workers=False)
        self.port: int = self._store.port
        self._beats: dict[str, tuple[int, float]] = {}

    def is_here(self, pod: str) -> bool:
        """Whether a pod has started."""
        return bool(self._store.check([gang.here_key(pod)]))

    def form(self, pods: list[str]) -> None:
        """Let these pods begin, in the order of their ranks."""
        self._store.set(gang.FORMATION, json.dumps(pods))
        now = time.monotonic()
        self._beats = dict.fromkeys(pods, (-1, now))

    def silent_seconds(self, pod: str) -> float:
        """How long a pod's count of beats has not changed; call it often."""
        beats = int(self._store.add(gang.beat_key(pod), 0))
        now = time.monotonic()
        before, since = self._beats.get(pod, (-1, now))
        if beats != before:
            before, since = self._beats[pod] = (beats, now)
        return now - since

    def was_signalled(self, pod: str) -> bool:
        """Whether a pod has received SIGTERM."""
        return bool(self._store.check([gang.signalled_key(pod)]))

    def hang_of(self, pod: str) -> Hang | None:
        """The collective that a pod has given up; None if it has not, or if its report is not valid."""
        key = gang.hung_key(pod)
        if not self._store.check([key]):
            return None
        try:
            return Hang.from_text(self._store.get(key)[:_MAX_BYTES].decode(errors="replace"))
        except InvalidInput as error:
            _log.warning("pod %s: %s", pod, error)
            return None

    def end_of(self, pod: str) -> tuple[bool, Message | None]:
        """Whether a pod has reported how its ranks ended, and the report."""
        key = gang.ended_key(pod)
        if not self._store.check([key]):
            return False, None
        try:
            return True, gang.end_from_bytes(self._store.get(key)[:_MAX_BYTES])
        except InvalidInput as error:
            return True, Raised(f"pod {pod}: {error}", final=True, checkpoint=None)


def own_address() -> str:
    """This machine's address for pods: the one from which it reaches the cluster's API."""
    url = urlsplit(api.core_api().api_client.configuration.host)
    family, kind, _, _, address = socket.getaddrinfo(url.hostname, url.port or 443, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)  # This sends nothing.
        return str(probe.getsockname()[0])
