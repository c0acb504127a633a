"""A trial in a pod of an image of its own: started, watched and ended through the cluster's API; messages go through the store.

The pod gets no credential but the store's, and its messages can change nothing but the trial's own results.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import not_
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import Retrying, before_sleep_log, retry_base, retry_if_exception_type, retry_if_result, stop_after_delay, wait_random

from halving import Store
from halving.errors import InvalidInput, StoreUnavailable
from halving.trial.context import TrialContext
from halving.trial.mailbox import Mailbox, mail_folder
from halving.trial.messages import Granted, Message, Raised, ReachedRung, ReturnedEarly
from halving.trial_process.pod import VARIABLE, Task, post_task
from resources.execution.kubernetes import api
from resources.execution.kubernetes.cluster_config import ClusterConfig
from resources.execution.kubernetes.pod_manifests import ATTEMPT_LABEL, TRIAL_LABEL, label_value, labels_of, trial_manifest
from resources.execution.kubernetes.pod_status import LOST_SECONDS, has_started, is_queued, termination_of, waiting_reason
from resources.execution.local_processes import thread_limits
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.termination import Termination
from resources.sweep_spec import SweepSpec

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

# Pods of trials; the pods of workers have the labels of their trial, too.
_OURS = {"halving/pod": "trial"}
_STARTING_SECONDS, _RUNNING_SECONDS = 1.0, 3.0  # between two looks at the pod
_FENCE_SECONDS = 60.0  # after its grace period, for the pod of an older attempt to be gone
_LAST_MESSAGE_SECONDS = 60.0  # for the store to answer once the pod has ended
_CLOSE_SECONDS = 60.0  # for the API to answer when the pod of an attempt that is over is to be deleted
_NOTE_AGAIN_SECONDS = 30.0  # after the database was unavailable: asking it may take as long
_PAUSE = wait_random(0.5, 1.5)  # seconds; random, as many workers lose the API or the store in the same instant
_NEVER = (400, 422)  # statuses of requests that the API refuses whatever changes in the cluster

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class PodProcesses:
    """Trials of a sweep as pods.

    Args:
        cluster: its settings.
        scheduler: the sweep's; it records why a pod does not start.
        store: where trials write.
    """

    def __init__(self, cluster: ClusterConfig, scheduler: Scheduler, store: Store) -> None:
        self._cluster, self._scheduler, self._store = cluster, scheduler, store
        pod = api.own_pod()
        self._owner = pod and {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}

    def prepare(self, assignment: Assignment, context: TrialContext) -> "PodProcess":
        spec, folder = self._scheduler.spec, mail_folder(context.project, context.run, context.attempt)
        task = Task(context, spec.trained_by, assignment.granted, spec.resources.threads)
        manifest = trial_manifest(
            spec,
            self._cluster,
            name=_pod_name(assignment),
            labels=labels_of(assignment) | _OURS,
            command=["python3", "-m", "halving.trial_process.pod"],
            env={"HALVING_ROOT": self._store.root, VARIABLE: folder, **thread_limits(spec.resources)},
            owner=self._owner,
        )
        return PodProcess(
            manifest,
            spec,
            Mailbox(self._store, folder, sends="worker", reads="trial"),
            granted=assignment.granted,
            post_task=lambda: post_task(self._store, folder, task),
            on_waiting=lambda reason: self._scheduler.note_waiting(assignment, reason),
        )


class PodProcess:
    """The pod of one attempt. All waiting (for older pods to end, for an image, for a node) is done step by step in :meth:`receive`."""

    def __init__(
        self,
        manifest: dict[str, Any],
        spec: SweepSpec,
        mailbox: Mailbox,
        *,
        granted: int,
        post_task: Callable[[], None],
        on_waiting: Callable[[str | None], None],
    ) -> None:
        self.name: str = manifest["metadata"]["name"]
        self._manifest, self._resources, self._mailbox = manifest, spec.resources, mailbox
        self._attempt = int(manifest["metadata"]["labels"][ATTEMPT_LABEL])
        self._metrics = {objective.metric for objective in spec.objectives} | spec.bounds.keys()
        self._granted, self._post_task, self._on_waiting = granted, post_task, on_waiting
        self._began = self._looked = 0.0
        self._waiting: str | None = None  # the reason that was last noted
        self._note_at = 0.0  # not before, after it could not be noted
        self._why: str | None = None  # the last reason that the cluster gave
        self._tried = False  # to create it: the pod may exist although the answer was lost
        self._created = self.started = False
        self._owed: Callable[[], None] | None = None  # a deletion that the API has not confirmed
        self._termination: Termination | None = None
        self._ended = False
        self._give_up_at = 0.0  # when not to look any more for the last message of a pod that has ended
        self._gone_by: float | None = None  # when a deleted pod must be gone

    def start(self) -> None:
        self._began = time.monotonic()

    @property
    def alive(self) -> bool:
        return bool(self._began) and not self._ended

    def receive(self, timeout: float) -> Message | None:
        if self._ended:
            return self._last_message()
        if self._owed:
            self._owed()
        if not self._created:
            self._create()
            if not self._created:
                time.sleep(timeout)
                return None
        elif time.monotonic() - self._looked > (_RUNNING_SECONDS if self.started else _STARTING_SECONDS):
            self._look()
        return self._checked(partial(self._mailbox.receive, timeout))

    def answer(self, granted: Granted) -> None:
        self._granted = granted.epochs
        try:
            self._mailbox.send(granted)
        except OSError as error:  # a trial that gets no answer ends by itself
            _log.warning("pod %s gets no answer, and will end by itself: %s", self.name, error)

    def terminate(self) -> None:
        self._delete(None)

    def kill(self) -> None:
        self._delete(0)

    def termination(self) -> Termination:
        return self._termination or Termination(f"pod {self.name} ended without a message", own_fault=True)

    def close(self) -> None:
        """Delete the pod, whatever is known of it: a forgotten one would train on, and keep its GPUs."""
        if self._tried and not _ask_again(partial(self._ask_to_delete, None), retry_if_result(not_), _CLOSE_SECONDS):
            _log.warning("pod %s may still run, for the cluster's API did not answer: delete it by hand", self.name)
        try:
            self._mailbox.clear()
        except OSError as error:
            _log.warning("the messages of pod %s stay in the store: %s", self.name, error)

    def _create(self) -> None:
        """Start the pod once no other attempt at the trial has one.

        Raises:
            Superseded: a later attempt has one.
        """
        if self._late():
            return
        others = self._ask(self._other_pods)
        if others is None:
            return
        if newer := [pod for pod in others if _attempt_of(pod) > self._attempt]:
            raise Superseded(f"attempt {self._attempt} gets no pod: {newer[0].metadata.name} is of attempt {_attempt_of(newer[0])}")
        if others:
            self._fence(others)
            return
        try:
            self._post_task()
        except StoreUnavailable as error:
            self._note(f"the store is unavailable: {error}")
            return
        except OSError as error:
            self._note(f"the store refuses what the trial's pod is to read: {error}")
            return
        self._created = bool(self._ask(self._create_pod))

    def _create_pod(self) -> bool:
        from kubernetes.client import ApiException

        self._tried = True
        try:
            api.create_pod(self._manifest)
        except ApiException as error:
            if error.status not in _NEVER:
                raise
            self._end(Termination(f"the cluster does not accept the trial's pod: {api.message_of(error)}", own_fault=True))
            return False
        return True

    def _other_pods(self) -> "list[V1Pod]":
        found = api.find_pods({TRIAL_LABEL: self._manifest["metadata"]["labels"][TRIAL_LABEL], **_OURS})
        return [pod for pod in found if _attempt_of(pod) != self._attempt]

    def _fence(self, older: "list[V1Pod]") -> None:
        """Two attempts at a trial never run at the same time: end those whose lease was lost."""
        for pod in older:
            if pod.metadata.deletion_timestamp is None:
                self._ask(partial(api.delete_pod, pod.metadata.name, None))
            elif time.monotonic() - self._began > self._resources.grace_seconds + _FENCE_SECONDS:
                _log.warning(
                    "node %s does not confirm that pod %s has ended; the pod counts as lost", pod.spec.node_name, pod.metadata.name
                )
                self._ask(partial(api.delete_pod, pod.metadata.name, 0))
        self._note(f"pod {older[0].metadata.name} of an earlier attempt has not ended yet")

    def _look(self) -> None:
        """Ask the cluster for the pod's state."""
        self._looked = time.monotonic()
        found = self._ask(lambda: (api.read_pod(self.name),))
        if found is None:
            return
        (pod,) = found
        if pod is None:
            self._end(self._termination or Termination(f"pod {self.name} was deleted", own_fault=False))
            return
        if pod.metadata.deletion_timestamp is not None:
            self._leaving(pod)
        if pod.status.phase in ("Succeeded", "Failed"):
            self._end(termination_of(pod))
        elif has_started(pod):
            self.started = True
            self._note(None)
        elif is_queued(pod) or not self._late():
            if is_queued(pod):
                self._began = time.monotonic()  # time in a queue does not count
            asked = self._ask(lambda: (waiting_reason(pod) or waiting_reason(pod, api.events_of(pod)),))
            if asked is not None:
                self._note(*asked)

    def _leaving(self, pod: "V1Pod") -> None:
        """A deleted pod reports how it ended within its grace period; on a node that is lost it never does."""
        self._termination = termination_of(pod)
        if self._gone_by is None:
            self._gone_by = time.monotonic() + self._resources.grace_seconds + LOST_SECONDS
        elif time.monotonic() > self._gone_by:
            self._end(
                Termination(f"pod {self.name} is lost with its node {pod.spec.node_name}, which does not confirm its end", own_fault=False)
            )

    def _late(self) -> bool:
        """Give up a pod that has not started in time; it is deleted in :meth:`close`."""
        limit = self._resources.start_timeout_seconds
        if self.started or time.monotonic() - self._began < limit:
            return False
        why = self._why or "the cluster gives no reason"
        self._end(Termination(f"the trial's pod did not start within resources.start_timeout_seconds = {limit:g}: {why}", own_fault=True))
        return True

    def _end(self, termination: Termination | None) -> None:
        self._ended, self._termination = True, termination
        self._give_up_at = time.monotonic() + _LAST_MESSAGE_SECONDS

    def _last_message(self) -> Message | None:
        """What the pod sent before it ended; while the store is unavailable it is asked again."""
        seconds = max(0.0, self._give_up_at - time.monotonic())
        return self._checked(lambda: _ask_again(self._mailbox.look, retry_if_exception_type(OSError), seconds))

    def _checked(self, receive: Callable[[], Message | Granted | None]) -> Message | None:
        """A message received, or an error in its place where it is not for a trial to send."""
        try:
            message = receive()
            return message if message is None else self._accepted(message)
        except InvalidInput as error:
            return Raised(f"pod {self.name}: {error}", final=True, checkpoint=None)

    def _accepted(self, message: Message | Granted) -> Message:
        """A message, with the metrics of the spec alone.

        Raises:
            InvalidInput: it is not for a trial to send.
        """
        if isinstance(message, Granted):
            raise InvalidInput(f"the trial's message {message!r} is not accepted: only the platform grants epochs")
        self.started = True  # whatever the cluster says
        if not isinstance(message, ReachedRung | ReturnedEarly):
            return message
        if isinstance(message, ReachedRung) and message.epoch != self._granted:
            raise InvalidInput(f"ReachedRung.epoch = {message.epoch} is not accepted: give {self._granted}, as granted")
        if isinstance(message, ReturnedEarly) and message.epoch >= self._granted:
            raise InvalidInput(f"ReturnedEarly.epoch = {message.epoch} is not accepted: give less than the {self._granted} granted")
        if missing := self._metrics - message.values.keys():
            raise InvalidInput(f"the trial's message without values of {sorted(missing)} is not accepted: give {sorted(self._metrics)}")
        return replace(message, values={metric: float(message.values[metric]) for metric in self._metrics})

    def _delete(self, grace_seconds: int | None) -> None:
        if not self._tried:
            self._end(Termination(f"pod {self.name} was to end before it was created", own_fault=False))
            return
        self._created = True  # perhaps; the next look at the pod finds out
        self._owed = None if self._ask_to_delete(grace_seconds) else partial(self._delete, grace_seconds)

    def _ask_to_delete(self, grace_seconds: int | None) -> bool:
        """Whether the API has confirmed it."""
        return self._ask(partial(api.delete_pod, self.name, grace_seconds)) is not None

    def _note(self, reason: str | None) -> None:
        """Have it recorded why the pod has not started, if that is new or could not be recorded before."""
        self._why = reason or self._why
        if reason == self._waiting or time.monotonic() < self._note_at:
            return
        try:
            self._on_waiting(reason)
        except Exception as error:  # noqa: BLE001  # whatever a database may raise: the reason is only for people to read
            _log.warning("could not record that pod %s waits (%s): %s", self.name, reason, error)
            self._note_at = time.monotonic() + _NOTE_AGAIN_SECONDS
            return
        self._waiting = reason

    def _ask(self, question: Callable[[], _Answer]) -> _Answer | None:
        """The API's answer; None if it does not answer or refuses: a trial that runs then goes on."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return question()
        except ApiException as error:
            reason = f"the cluster's API answers {error.status}: {api.message_of(error)}"
        except (HTTPError, OSError) as error:
            reason = f"the cluster's API does not answer: {error}"
        _log.warning("pod %s: %s", self.name, reason)
        if not self.started and not self._ended:
            self._note(reason)
        return None


def _pod_name(assignment: Assignment) -> str:
    """A name that no other pod has or had, in which people recognise the trial."""
    key = re.sub("[^a-z0-9-]", "-", label_value(assignment.key).lower()).strip("-")
    return f"halving-{key[:40]}-a{assignment.attempt}-{secrets.token_hex(3)}"


def _ask_again(question: Callable[[], _Answer], retry: retry_base, seconds: float) -> _Answer | None:
    """The answer, asked for again while ``retry`` says so; None after so many seconds."""
    warn = before_sleep_log(_log, logging.WARNING)
    again = Retrying(retry=retry, stop=stop_after_delay(seconds), wait=_PAUSE, before_sleep=warn, retry_error_callback=lambda _: None)
    return again(question)


def _attempt_of(pod: "V1Pod") -> int:
    return int(pod.metadata.labels[ATTEMPT_LABEL])
