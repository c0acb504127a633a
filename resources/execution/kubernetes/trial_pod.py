"""A trial in a pod of an image of its own: started, watched and ended through the cluster's API, spoken with through the store.

The pod gets no credential but the store's, and its messages are not trusted with more than the trial's own results.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from halving import Store
from halving.errors import InvalidInput, StoreAway
from halving.trial.context import TrialContext
from halving.trial.mailbox import Mailbox, mail_folder
from halving.trial.messages import Granted, Message, Raised, ReachedRung, ReturnedEarly
from halving.trial_process.pod import VARIABLE, Task, post_task
from resources.execution.kubernetes import api
from resources.execution.kubernetes.cluster_config import ClusterConfig
from resources.execution.kubernetes.pod_manifests import ATTEMPT_LABEL, TRIAL_LABEL, label_value, labels_of, trial_manifest
from resources.execution.kubernetes.pod_status import has_started, is_queued, termination_of, waiting_reason
from resources.execution.local_processes import thread_limits
from resources.scheduling.assignment import Assignment, Superseded
from resources.scheduling.scheduler import Scheduler
from resources.scheduling.termination import Termination
from resources.sweep_spec import SweepSpec

if TYPE_CHECKING:
    from kubernetes.client import V1Pod

# Workers' pods carry the labels of their trial, too.
_OURS = {"halving/pod": "trial"}
_STARTING_SECONDS, _RUNNING_SECONDS = 1.0, 3.0  # between two looks at the pod
_FENCE_SECONDS = 60.0  # beyond its grace period, for the pod of an older attempt to be gone
_LOST_SECONDS = 30.0  # beyond its grace period, for a pod that was deleted to be gone; then its node is lost
_LAST_WORD_SECONDS = 60.0  # for a store that is away while the pod has ended
_CLOSE_SECONDS = 60.0  # for an API that is away, while the pod of an attempt that is over is to be deleted
_TELL_AGAIN_SECONDS = 30.0  # after a database that was away: asking it may take as long
_NEVER = (400, 422)  # what the API refuses whatever changes in the cluster

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class PodProcesses:
    """Trials of a sweep as pods.

    Args:
        cluster: its settings.
        scheduler: the sweep's; it is told why a pod does not start.
        store: where trials write.
    """

    def __init__(self, cluster: ClusterConfig, scheduler: Scheduler, store: Store) -> None:
        self._cluster, self._scheduler, self._store = cluster, scheduler, store
        pod = api.own_pod()
        self._owner = pod and {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}

    def prepare(self, assignment: Assignment, context: TrialContext) -> "PodProcess":
        spec, folder = self._scheduler.spec, mail_folder(context.project, context.run, context.attempt)
        task = Task(context, spec.trainable, assignment.granted, spec.resources.threads)
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
    """The pod of one attempt. All that takes time (older pods, an image, a node) happens step by step in :meth:`receive`."""

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
        self._waiting: str | None = None  # as last told
        self._tell_at = 0.0  # not before, after it could not be told
        self._why: str | None = None  # the last reason that there was
        self._tried = False  # to create it: the answer may be lost, and the pod be there
        self._created = self._started = False
        self._owed: Callable[[], None] | None = None  # a deletion that the API has not heard of yet
        self._termination: Termination | None = None
        self._ended = False
        self._last_look: float | None = None  # when to give up looking for the last word of a pod that has ended
        self._gone_by: float | None = None  # when a pod that was deleted must be gone

    def start(self) -> None:
        self._began = time.monotonic()

    @property
    def alive(self) -> bool:
        return bool(self._began) and not self._ended

    @property
    def started(self) -> bool:
        return self._started

    def receive(self, timeout: float) -> Message | None:
        if self._ended:
            return self._last_word()
        if self._owed:
            self._owed()
        if not self._created:
            self._create()
            if not self._created:
                time.sleep(timeout)
                return None
        elif time.monotonic() - self._looked > (_RUNNING_SECONDS if self._started else _STARTING_SECONDS):
            self._look()
        return self._heard(timeout)

    def answer(self, granted: Granted) -> None:
        self._granted = granted.epochs
        try:
            self._mailbox.send(granted)
        except OSError as error:  # the trial ends itself when nobody answers
            _log.warning("pod %s gets no answer: %s", self.name, error)

    def terminate(self) -> None:
        self._delete(None)

    def kill(self) -> None:
        self._delete(0)

    def termination(self) -> Termination:
        return self._termination or Termination(f"pod {self.name} ended and said nothing", own_fault=True)

    def close(self) -> None:
        """Delete the pod, whatever is known of it: one that is forgotten would train on, and keep its GPUs."""
        until = time.monotonic() + _CLOSE_SECONDS
        while self._tried and not self._ask_to_delete(None):
            if time.monotonic() > until:
                _log.warning("pod %s may be there still: the cluster's API could not be told to delete it", self.name)
                break
            time.sleep(1.0)
        try:
            self._mailbox.clear()
        except OSError as error:
            _log.warning("the mail of pod %s stays in the store: %s", self.name, error)

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
        except StoreAway as error:
            self._tell(f"the store is away: {error}")
            return
        except OSError as error:
            self._tell(f"the store refuses what the trial's pod is to read: {error}")
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
            self._end(Termination(f"the cluster does not accept the trial's pod: {api.words_of(error)}", own_fault=True))
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
                _log.warning("node %s does not confirm the end of pod %s; it is taken for lost", pod.spec.node_name, pod.metadata.name)
                self._ask(partial(api.delete_pod, pod.metadata.name, 0))
        self._tell(f"pod {older[0].metadata.name} of an earlier attempt has not ended yet")

    def _look(self) -> None:
        """What the cluster says of the pod."""
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
            self._started = True
            self._tell(None)
        elif is_queued(pod) or not self._late():
            if is_queued(pod):
                self._began = time.monotonic()  # a queue may take as long as it takes
            asked = self._ask(lambda: (waiting_reason(pod) or waiting_reason(pod, api.events_of(pod)),))
            if asked is not None:
                self._tell(*asked)

    def _leaving(self, pod: "V1Pod") -> None:
        """A pod that was deleted tells how it ended within its grace period; on a node that is lost it never does."""
        self._termination = termination_of(pod)
        if self._gone_by is None:
            self._gone_by = time.monotonic() + self._resources.grace_seconds + _LOST_SECONDS
        elif time.monotonic() > self._gone_by:
            self._end(
                Termination(f"pod {self.name} is lost with its node {pod.spec.node_name}, which does not confirm its end", own_fault=False)
            )

    def _late(self) -> bool:
        """Give up a pod that has not started in time; it is deleted in :meth:`close`."""
        limit = self._resources.start_timeout_seconds
        if self._started or time.monotonic() - self._began < limit:
            return False
        why = self._why or "the cluster gives no reason"
        self._end(Termination(f"the trial's pod did not start within resources.start_timeout_seconds = {limit:g}: {why}", own_fault=True))
        return True

    def _end(self, termination: Termination | None) -> None:
        self._ended, self._termination = True, termination
        self._last_look = time.monotonic() + _LAST_WORD_SECONDS

    def _last_word(self) -> Message | None:
        """What the pod said before it ended; a store that is away at this moment is waited for."""
        while self._last_look is not None and time.monotonic() < self._last_look:
            try:
                return self._checked(self._mailbox.look())
            except InvalidInput as error:
                return Raised(f"pod {self.name}: {error}", final=True, checkpoint=None)
            except OSError as error:
                _log.warning("cannot look for the last word of pod %s: %s", self.name, error)
                time.sleep(1.0)
        return None

    def _heard(self, timeout: float) -> Message | None:
        try:
            return self._checked(self._mailbox.receive(timeout))
        except InvalidInput as error:
            return Raised(f"pod {self.name}: {error}", final=True, checkpoint=None)

    def _checked(self, message: Message | Granted | None) -> Message | None:
        """A message as far as it is a trial's to say."""
        if isinstance(message, Granted):
            raise InvalidInput(f"the trial's message {message!r} is not accepted: it is for the platform to grant epochs")
        if message is not None:
            self._started = True  # whatever the cluster says
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
            self._end(Termination(f"pod {self.name} was told to end before it was created", own_fault=False))
            return
        self._created = True  # or so it may be; the next look tells
        self._owed = None if self._ask_to_delete(grace_seconds) else partial(self._delete, grace_seconds)

    def _ask_to_delete(self, grace_seconds: int | None) -> bool:
        """Whether the API has heard of it."""
        return self._ask(partial(api.delete_pod, self.name, grace_seconds)) is not None

    def _tell(self, reason: str | None) -> None:
        """Say why the pod has not started, when that is new or could not be told before."""
        self._why = reason or self._why
        if reason == self._waiting or time.monotonic() < self._tell_at:
            return
        try:
            self._on_waiting(reason)
        except Exception as error:  # noqa: BLE001  # whatever a database may raise: it is only for people to read
            _log.warning("could not note that pod %s waits (%s): %s", self.name, reason, error)
            self._tell_at = time.monotonic() + _TELL_AGAIN_SECONDS
            return
        self._waiting = reason

    def _ask(self, question: Callable[[], _Answer]) -> _Answer | None:
        """The API's answer; None while it is away or refuses, and then a trial that runs goes on."""
        from kubernetes.client import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return question()
        except ApiException as error:
            said = f"the cluster's API answers {error.status}: {api.words_of(error)}"
        except (HTTPError, OSError) as error:
            said = f"the cluster's API does not answer: {error}"
        _log.warning("pod %s: %s", self.name, said)
        if not self._started and not self._ended:
            self._tell(said)
        return None


def _pod_name(assignment: Assignment) -> str:
    """A name that no other pod has or had; people recognise the trial in it."""
    key = re.sub("[^a-z0-9-]", "-", label_value(assignment.key).lower()).strip("-")
    return f"halving-{key[:40]}-a{assignment.attempt}-{secrets.token_hex(3)}"


def _attempt_of(pod: "V1Pod") -> int:
    return int(pod.metadata.labels[ATTEMPT_LABEL])
