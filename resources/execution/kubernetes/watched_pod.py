"""Creates, watches and ends a pod through the cluster's API; the pod reports through a mailbox in the store.

All waiting (for an image, for a node, for the API or the store to answer) is done step by step in
:meth:`WatchedPod.receive`.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable
from functools import partial
from operator import not_
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import (
    Retrying,
    before_sleep_log,
    retry_base,
    retry_if_exception_type,
    retry_if_result,
    stop_after_delay,
    wait_random,
)

from halving.errors import StoreUnavailable
from halving.store.deadline import Deadline
from halving.trial.mailbox import Mailbox
from halving.trial.messages import Granted, Message, Ready
from resources.execution.kubernetes import api
from resources.execution.kubernetes.pod_manifests import label_value
from resources.execution.kubernetes.pod_status import (
    LOST_SECONDS,
    has_started,
    image_digest_of,
    is_queued,
    termination_of,
    waiting_reason,
)
from resources.execution.waiting_note import WaitingNote
from resources.scheduling.termination import Termination
from resources.sweep_spec.requirements import Needs

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

# Pauses between two looks at the pod.
_STARTING_SECONDS = 1.0
_RUNNING_SECONDS = 3.0
_DIGEST_PAUSE = 0.25  # seconds between looks for it
_LAST_MESSAGE_SECONDS = 60.0  # for the store to answer once the pod has ended
_CLOSE_SECONDS = 60.0  # for the API to answer when the pod of an attempt that is over is to be deleted
# In seconds. It is random, because many workers lose the API or the store at the same time.
_PAUSE = wait_random(0.5, 1.5)
_NEVER = (400, 422)  # HTTP statuses of requests that the API refuses whatever changes in the cluster

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class WatchedPod:
    """The pod of one training.

    Args:
        manifest: as the API takes it.
        resources: say how long it may take to start and to end.
        mailbox: the starter's end.
        post_task: describes the training in the mailbox once the pod may be created.
        on_waiting: gets the reason why the pod has not started whenever that changes; None when it has.
        may_start: says whether the pod may be created now; it is called until it may.

    Attributes:
        started: whether it has begun to run.
        ended: whether it has ended, or was given up.
        leaving: whether it was asked to end.
        placed: whether it has a node.
        stuck: whether it has a node and cannot start there, as far as the cluster knows.
        image_digest: the image with its digest, as the cluster names it; None until that is known.
    """

    def __init__(
        self,
        manifest: dict[str, Any],
        resources: Needs,
        mailbox: Mailbox,
        *,
        post_task: Callable[[], None],
        on_waiting: Callable[[str | None], None],
        may_start: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.mailbox = mailbox
        self._manifest = manifest
        self._resources = resources
        self._post_task = post_task
        self._may_start = may_start
        self._waiting = WaitingNote(self.name, on_waiting)
        self.began = self._looked = 0.0
        self._why: str | None = None  # the last reason that the cluster gave
        self._tried = False  # whether its creation was tried; it may exist although the answer was lost
        self._created = self.started = self.leaving = self.placed = self.stuck = self.ended = False
        self.image_digest: str | None = None
        self._owed: Callable[[], None] | None = None  # a deletion that the API has not confirmed
        self._termination: Termination | None = None
        self._last_look = Deadline()  # for the last message of a pod that has ended
        self._gone_by: float | None = None  # when the deleted pod must be gone

    def start(self) -> None:
        self.began = time.monotonic()

    def receive(self, timeout: float) -> Message | Granted | Ready | None:
        """Tend the pod, and wait for its next message; None if none came within ``timeout`` seconds.

        Raises:
            InvalidInput: the pod sent something that is no message.
        """
        if self.ended:
            return self._last_message()
        self.tend()
        if not self._created:
            time.sleep(timeout)
            return None
        return self.mailbox.receive(timeout)

    def tend(self) -> None:
        """Create the pod, look at it, or delete it, whatever is due."""
        if self.ended:
            return
        if self._owed:
            self._owed()
        pause = _STARTING_SECONDS
        if self.started:
            pause = _RUNNING_SECONDS
        if not self._created:
            self._create()
        elif time.monotonic() - self._looked > pause:
            self.look()

    def delete(self, grace_seconds: int | None) -> None:
        """Have the pod end.

        Args:
            grace_seconds: None is the pod's own grace period.
        """
        self.leaving = True
        if not self._tried:
            self._end(Termination(f"pod {self.name} was to end before it was created", own_fault=False))
            return
        self._created = True  # This may be wrong; the next look at the pod finds out.
        is_confirmed = self._ask_to_delete(grace_seconds)
        self._owed = None
        if not is_confirmed:
            self._owed = partial(self.delete, grace_seconds)

    @property
    def known_termination(self) -> Termination | None:
        """Why it ended, by the cluster; None while it runs, or if it succeeded."""
        if not self.ended:
            return None
        return self._termination

    def termination(self) -> Termination:
        """Why it ended without a last message."""
        return self._termination or Termination(f"pod {self.name} ended without a message", own_fault=True)

    def remove(self, grace_seconds: int | None = None) -> None:
        """Delete the pod in any case, because a forgotten one would train on and keep its GPUs."""
        if self._tried and not _ask_again(
            partial(self._ask_to_delete, grace_seconds), retry_if_result(not_), _CLOSE_SECONDS
        ):
            _log.warning(
                "pod %s may still run, for the cluster's API did not answer: delete it by hand", self.name
            )

    def close(self) -> None:
        """Delete the pod and its messages."""
        self.remove()
        try:
            self.mailbox.clear()
        except OSError as error:
            _log.warning("the messages of pod %s stay in the store: %s", self.name, error)

    def _create(self) -> None:
        """Create the pod once that is possible."""
        if self._give_up_if_late() or not self._may_start():
            return
        try:
            self._post_task()
        except StoreUnavailable as error:
            self.note(f"the store is unavailable: {error}")
            return
        except OSError as error:
            self.note(f"the store refuses what the trial's pod is to read: {error}")
            return
        self._created = bool(self.ask(self._create_pod))

    def _create_pod(self) -> bool:
        from kubernetes.client import ApiException

        self._tried = True
        try:
            api.create_pod(self._manifest)
        except ApiException as error:
            if error.status not in _NEVER:
                raise
            self._end(
                Termination(
                    f"the cluster does not accept the trial's pod: {api.message_of(error)}", own_fault=True
                )
            )
            return False
        return True

    def look(self) -> None:
        """Ask the cluster for the pod's state, once there is a pod."""
        if not self._created:
            return
        self._looked = time.monotonic()
        answer = self.ask(lambda: (api.read_pod(self.name),))
        if answer is None:
            return
        (pod,) = answer
        if pod is None:
            self._end(self._termination or Termination(f"pod {self.name} was deleted", own_fault=False))
            return
        self.placed = bool(pod.spec.node_name)
        self.stuck = self.placed and waiting_reason(pod) is not None
        if pod.metadata.deletion_timestamp is not None:
            self._follow_leaving(pod)
        self.image_digest = self.image_digest or image_digest_of(pod)
        if pod.status.phase in ("Succeeded", "Failed"):
            self._end(termination_of(pod))
        elif has_started(pod):
            self.started = True
            self.note(None)
        elif is_queued(pod) or not self._give_up_if_late():
            if is_queued(pod):
                self.began = time.monotonic()  # Time in a queue does not count.
            reason = self.ask(lambda: (waiting_reason(pod) or waiting_reason(pod, api.events_of(pod)),))
            if reason is not None:
                self.note(*reason)

    def wait_for_image_digest(self, seconds: float) -> str | None:
        """Wait until the cluster knows the image digest of a pod that runs, or has run.

        The pod itself may be quicker than the cluster's status.

        Returns:
            None if the cluster does not know it after so many seconds.
        """
        until = time.monotonic() + seconds
        while self.image_digest is None and not self.ended and time.monotonic() < until:
            self.look()
            if self.image_digest is None:
                time.sleep(_DIGEST_PAUSE)
        return self.image_digest

    def _follow_leaving(self, pod: "V1Pod") -> None:
        """Note how a deleted pod ends, and give it up after its grace period: its node is then lost."""
        self._termination = termination_of(pod)
        if self._gone_by is None:
            self._gone_by = time.monotonic() + self._resources.grace_seconds + LOST_SECONDS
        elif time.monotonic() > self._gone_by:
            self._end(
                Termination(
                    (
                        f"pod {self.name} is lost with its node {pod.spec.node_name}, which does not confirm "
                        "its end"
                    ),
                    own_fault=False,
                )
            )

    def _give_up_if_late(self) -> bool:
        """Give up a pod that has not started in time; return whether it was given up.

        It is deleted in :meth:`close`.
        """
        limit = self._resources.start_timeout_seconds
        if self.started or time.monotonic() - self.began < limit:
            return False
        why = self._why or "the cluster gives no reason"
        self._end(
            Termination(
                f"the trial's pod did not start within resources.start_timeout_seconds = {limit:g}: {why}",
                own_fault=True,
            )
        )
        return True

    def _end(self, termination: Termination | None) -> None:
        self.ended = True
        self._termination = termination
        self._last_look = Deadline.after(_LAST_MESSAGE_SECONDS)

    def _last_message(self) -> Message | Granted | Ready | None:
        """The last message of a pod that has ended; the store is asked again while it is unavailable."""
        seconds = max(0.0, self._last_look.remaining())
        return _ask_again(self.mailbox.look, retry_if_exception_type(OSError), seconds)

    def _ask_to_delete(self, grace_seconds: int | None) -> bool:
        """Ask the API to delete the pod; return whether it has confirmed."""
        return self.ask(partial(api.delete_pod, self.name, grace_seconds)) is not None

    def note(self, reason: str | None) -> None:
        """Record why the pod has not started; None once it has."""
        self._why = reason or self._why
        self._waiting.note(reason)

    def ask(self, question: Callable[[], _Answer]) -> _Answer | None:
        """Ask the API; None if it does not answer or refuses, and a running trial then goes on."""
        return api.ask_api(question, self._note_refusal)

    def _note_refusal(self, reason: str) -> None:
        _log.warning("pod %s: %s", self.name, reason)
        if not self.started and not self.ended:
            self.note(reason)


def pod_name(key: str, ending: str) -> str:
    """A new name for a pod, in which people recognise the trial."""
    readable = re.sub("[^a-z0-9-]", "-", label_value(key).lower()).strip("-")
    return f"halving-{readable[:40]}-{ending}-{secrets.token_hex(3)}"


def _ask_again(question: Callable[[], _Answer], retry: retry_base, seconds: float) -> _Answer | None:
    """Ask again while ``retry`` says so; None after so many seconds."""
    warn = before_sleep_log(_log, logging.WARNING)
    again = Retrying(
        retry=retry,
        stop=stop_after_delay(seconds),
        wait=_PAUSE,
        before_sleep=warn,
        retry_error_callback=lambda _: None,
    )
    return again(question)
