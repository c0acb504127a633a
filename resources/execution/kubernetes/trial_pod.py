"""A trial in a pod of an image of its own; its worker exchanges messages with it through the store.

The pod gets no credentials but the store's, and its messages can change nothing but the trial's own results.
"""

import logging
from collections.abc import Callable
from typing import Any

from halving.errors import InvalidInput
from halving.trial.mailbox import Mailbox
from halving.trial.messages import Granted, Message, Raised
from resources.execution.kubernetes.fence import Fence
from resources.execution.kubernetes.image_note import ImageNote
from resources.execution.kubernetes.trusted_messages import TrustedMessages
from resources.execution.kubernetes.watched_pod import WatchedPod
from resources.scheduling.termination import Termination
from resources.sweep_spec import SweepSpec

_DIGEST_SECONDS = 5.0  # for the cluster to say which image a pod ran whose training was over at once

_log = logging.getLogger(__name__)


class PodProcess:
    """The pod of one attempt.

    Two attempts at a trial never have a pod at the same time, and messages that are not a trial's are
    refused.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        spec: SweepSpec,
        mailbox: Mailbox,
        *,
        granted: int,
        image: ImageNote,
        post_task: Callable[[], None],
        on_waiting: Callable[[str | None], None],
    ) -> None:
        self._pod = WatchedPod(
            manifest,
            spec.resources,
            mailbox,
            post_task=post_task,
            on_waiting=on_waiting,
            may_start=self._is_alone,
        )
        self._image = image
        self._fence = Fence(manifest["metadata"]["labels"], spec.resources.grace_seconds)
        self._trusted = TrustedMessages.of_spec(spec, granted)

    def start(self) -> None:
        self._pod.start()

    @property
    def alive(self) -> bool:
        return bool(self._pod.began) and not self._pod.ended

    @property
    def started(self) -> bool:
        return self._pod.started

    @property
    def nodes(self) -> int:
        return 1

    @property
    def outgrown(self) -> bool:
        return False

    def receive(self, timeout: float) -> Message | None:
        """Its next message, or an error in place of one that a trial may not send."""
        try:
            message = self._pod.receive(timeout)
            self._image.note(self._pod.image_digest)
            if message is None:
                return None
            self._pod.started = True  # This holds whatever the cluster reports.
            return self._trusted.check(message)
        except InvalidInput as error:
            return Raised(f"pod {self._pod.name}: {error}", final=True, checkpoint=None)

    def answer(self, granted: Granted) -> None:
        self._trusted.granted = granted.epochs
        try:
            self._pod.mailbox.send(granted)
        except OSError as error:  # A trial that gets no answer ends by itself.
            _log.warning("pod %s gets no answer, and will end by itself: %s", self._pod.name, error)

    def ask_back(self) -> None:
        if not self._pod.started and not self._pod.leaving:
            self._pod.look()  # It may have begun since the last look, and have something to save.
            if not self._pod.started:
                self._pod.delete(None)
        if not self._pod.started:
            return
        try:
            self._pod.mailbox.ask_back()
        except OSError as error:  # It trains on until it is asked again.
            _log.warning("pod %s cannot be asked back yet: %s", self._pod.name, error)

    def terminate(self) -> None:
        self._pod.delete(None)

    def kill(self) -> None:
        self._pod.delete(0)

    def termination(self) -> Termination:
        return self._pod.termination()

    def close(self) -> None:
        try:
            if self._image.is_wanted and self._pod.started:
                self._image.note(self._pod.wait_for_image_digest(_DIGEST_SECONDS), last=True)
        finally:
            self._pod.close()

    def _is_alone(self) -> bool:
        return self._fence.is_alone(self._pod.ask, self._pod.note)
