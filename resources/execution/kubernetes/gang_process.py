"""A trial on several nodes: a gang of pods, which starts as a whole or not at all.

The gang's pods are created when it has the turn to form (:mod:`resources.scheduling.forming_line`). Each pod
starts an agent that waits, at the gang's rendezvous store, until the worker names the pods that form the
gang. From then on any pod that ends wrongly ends the attempt.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from halving.errors import InvalidInput, StoreError
from halving.trial.mailbox import Mailbox
from halving.trial.messages import Granted, Message, Raised
from resources.execution.kubernetes import api, gang_rules
from resources.execution.kubernetes.fence import Fence
from resources.execution.kubernetes.gang_network import GangNetwork
from resources.execution.kubernetes.gang_rules import PodState
from resources.execution.kubernetes.gang_store import GangStore
from resources.execution.kubernetes.gang_verdict import PodEnd, verdict
from resources.execution.kubernetes.image_note import ImageNote
from resources.execution.kubernetes.trusted_messages import TrustedMessages
from resources.execution.kubernetes.watched_pod import WatchedPod
from resources.execution.waiting_note import WaitingNote
from resources.scheduling.forming_lease import FormingLease
from resources.scheduling.termination import Termination
from resources.sweep_spec.requirements import AttemptResources

BEAT_LOST_SECONDS = 30.0
"""A pod without a heartbeat for so long is lost."""
_BROKEN_BEAT_SECONDS = 5.0  # The same once another pod says that the gang is broken.
# The same once a collective was given up. A pod that was lost before that has been silent for longer.
_HUNG_BEAT_SECONDS = 2.0
# From the first sign that a gang is broken until its end is reported without the pods that are silent.
_VERDICT_SECONDS = 10.0
# The same if a collective was given up, so that other pods can say where their ranks are.
_HANG_SECONDS = 2.0
_BROKEN_LOOK_SECONDS = 0.2  # between two looks at the pods of a broken gang
_LAST_MESSAGE_SECONDS = 60.0  # for the store to answer once all pods have ended
_BROKEN_GRACE_SECONDS = 1  # It is short, because ranks that wait for a lost one cannot save anything.
_PLACE_LOOK_SECONDS = 10.0  # between two looks at which other gangs want to form

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class GangProcess:
    """The pods of one attempt.

    Args:
        name: the gang's.
        manifest: makes the manifest of the pod of node N, under a new name.
        resources: of the trial.
        min_nodes: how many nodes the gang may shrink to.
        mailbox: of rank 0.
        store: the gang's rendezvous store.
        trusted: checks the messages of rank 0.
        lease: the turn to form; None if a queue (Kueue's) admits gangs as a whole.
        fence: keeps it apart from the pods of other attempts; None if there are no others.
        policies: from the labels of the worker's own pod to the network policies that the gang needs.
        post_task: describes the trial in the mailbox.
        on_waiting: gets the reason why the gang has not started whenever that changes; None when it has.
        image: writes down the digest of the pods' image; None if that was done before.

    Attributes:
        outgrown: whether the gang could begin again with more nodes, and is to be given back for that.
    """

    def __init__(
        self,
        name: str,
        manifest: Callable[[int], dict[str, Any]],
        resources: AttemptResources,
        min_nodes: int,
        mailbox: Mailbox,
        store: GangStore,
        trusted: TrustedMessages,
        lease: FormingLease | None,
        fence: Fence | None,
        *,
        policies: Callable[[dict[str, str] | None], list[dict[str, Any]]],
        post_task: Callable[[], None],
        on_waiting: Callable[[str | None], None],
        image: ImageNote | None = None,
    ) -> None:
        self._image = image
        self._name = name
        self._manifest = manifest
        self._resources = resources
        self._min_nodes = min_nodes
        self._mailbox = mailbox
        self._store = store
        self._trusted = trusted
        self._post_task = post_task
        self._lease = lease
        self._fence = fence
        self._network = GangNetwork(policies)
        self._waiting = WaitingNote(name, on_waiting)
        self._why: str | None = None  # the last reason that was noted
        self._pods: list[WatchedPod] = []
        self._leaving: list[WatchedPod] = []  # pods that were given up, until they are gone
        self._probe: WatchedPod | None = None  # waits for one more node
        self._reasons: dict[str, str | None] = {}  # pod to why it has not started
        self._began = self._created = self._formed_at = self._looked_for_others = 0.0
        self._quiet_since: float | None = None  # since when all pods have ended, and none wrongly
        self._kept = self._over = self.outgrown = False
        self._broken_at: float | None = None
        self._has_hung = False  # whether a pod has given up a collective
        self._broken = False  # whether it ended by itself
        self._last: Message | None = None  # to be received before the end
        self._termination: Termination | None = None

    @property
    def alive(self) -> bool:
        return bool(self._began) and not self._over

    @property
    def started(self) -> bool:
        return bool(self._formed_at)

    @property
    def nodes(self) -> int:
        return len(self._pods)

    def start(self) -> None:
        self._began = time.monotonic()

    def receive(self, timeout: float) -> Message | None:
        """Tend the pods; return rank 0's next message, or how the gang ended."""
        if not self._over and not self.started:
            self._form()
            if not (self._over or self.started):
                time.sleep(timeout)
            return None
        if not self._over:
            self._watch()
        # Messages that rank 0 sent before the end come first. An error in their place would hide that the
        # trial has reached its rung.
        if self._broken_at is not None:
            timeout = min(timeout, _BROKEN_LOOK_SECONDS)
        if self._over:
            timeout = 0.0
        if self.started and (message := self._read_mailbox(timeout)):
            return message
        if not self._over:
            return None
        last = self._last
        self._last = None
        return last

    def answer(self, granted: Granted) -> None:
        self._trusted.granted = granted.epochs
        try:
            self._mailbox.send(granted)
        except OSError as error:  # A trial that gets no answer ends by itself.
            _log.warning("gang %s gets no answer, and will end by itself: %s", self._name, error)

    def ask_back(self) -> None:
        if not self.started:
            self.terminate()
            return
        try:
            self._mailbox.ask_back()
        except OSError as error:  # It trains on until it is asked again.
            _log.warning("gang %s cannot be asked back yet: %s", self._name, error)

    def terminate(self) -> None:
        """Have all ranks save a checkpoint at the same step, and end."""
        if not self.started:
            self._end(f"gang {self._name} was to end before it was formed", own_fault=False)
        for pod in self._pods:
            pod.delete(None)

    def kill(self) -> None:
        for pod in self._pods:
            pod.delete(0)

    def termination(self) -> Termination:
        return self._termination or Termination(f"gang {self._name} ended without a message", own_fault=True)

    def close(self) -> None:
        """End it, whatever it is doing, and leave none of its pods."""
        self._leave_line()
        given_up = list(self._leaving)
        if self._probe is not None:
            given_up.append(self._probe)
        grace_seconds: int | None = None
        if self._broken:
            grace_seconds = _BROKEN_GRACE_SECONDS
        for pod in self._pods:
            pod.remove(grace_seconds)
        for pod in given_up:
            pod.remove(_BROKEN_GRACE_SECONDS)
        self._network.close(self.ask)
        try:
            self._mailbox.clear()
        except OSError as error:
            _log.warning("the messages of gang %s stay in the store: %s", self._name, error)

    def ask(self, question: Callable[[], _Answer]) -> _Answer | None:
        return api.ask_api(question, self._note)

    # How it forms.

    def _form(self) -> None:
        self._tend_leaving()
        if not self._pods:
            self._begin_forming()
            return
        if not self._kept and not self._has_turn():
            self._give_up_pods(
                "it could not be placed, and other gangs wait: it forms again when it is its turn"
            )
            return
        for pod in self._pods:
            pod.tend()
        if gone := next((pod for pod in self._pods if pod.ended), None):
            why = gone.termination()
            self._end(f"node {self._pods.index(gone)} of the gang: {why.reason}", own_fault=why.own_fault)
            return
        seconds = time.monotonic() - self._created
        states = [self._state(pod) for pod in self._pods]
        if not self._kept:
            if (kept := gang_rules.pods_to_keep(states, self._min_nodes, seconds)) is None:
                self._note_waiting()
                return
            self._kept = True
            states = [states[number] for number in kept]
            self._keep(kept)
            self._leave_line()
        if (forming := gang_rules.pods_to_form(states, self._min_nodes, seconds)) is None:
            self._note_waiting()
            return
        self._keep(forming)
        self._store.form([pod.name for pod in self._pods])
        self._formed_at = time.monotonic()
        self._waiting.note(None)

    def _begin_forming(self) -> None:
        """Create the pods as soon as nothing stands in the way."""
        limit = self._resources.start_timeout_seconds
        if time.monotonic() - self._began > limit:
            why = self._why or "the cluster gives no reason"
            self._end(
                f"the trial's gang did not form within resources.start_timeout_seconds = {limit:g}: {why}",
                own_fault=True,
            )
            return
        if self._fence is not None and not self._fence.is_alone(self.ask, self._note):
            return
        if not self._has_turn():
            self._note("another gang forms: one does at a time, and this one waits for its turn")
            return
        try:
            self._post_task()
        except StoreError as error:
            self._note(f"the store does not take what the gang is to read: {error}")
            return
        if not self._network.open(self.ask):
            return
        self._created = time.monotonic()
        self._kept = False
        self._reasons = {}
        self._pods = [self._new_pod(node) for node in range(self._resources.nodes)]
        for pod in self._pods:
            pod.began = self._began

    def _new_pod(self, node: int) -> WatchedPod:
        manifest = self._manifest(node)
        waits = partial(self._reasons.__setitem__, manifest["metadata"]["name"])
        pod = WatchedPod(manifest, self._resources, self._mailbox, post_task=lambda: None, on_waiting=waits)
        pod.start()
        return pod

    def _state(self, pod: WatchedPod) -> PodState:
        if self._store.is_here(pod.name):
            return PodState.HERE
        if not pod.placed:
            return PodState.UNPLACED
        if pod.stuck:
            return PodState.STUCK
        return PodState.STARTING

    def _keep(self, numbers: list[int]) -> None:
        """Go on with these pods, and give up the others."""
        self._leaving += [pod for number, pod in enumerate(self._pods) if number not in numbers]
        self._pods = [self._pods[number] for number in numbers]
        self._tend_leaving()

    def _give_up_pods(self, why: str) -> None:
        self._keep([])
        self._note(why)

    def _tend_leaving(self) -> None:
        """Delete the pods that were given up, until they are gone."""
        for pod in self._leaving:
            if not pod.leaving:
                pod.delete(_BROKEN_GRACE_SECONDS)
            pod.tend()
        self._leaving = [pod for pod in self._leaving if not pod.ended]

    def _has_turn(self) -> bool:
        if self._lease is None:
            return True
        try:
            return self._lease.take()
        except DBAPIError as error:
            _log.warning("gang %s cannot ask for its turn to form: %s", self._name, error)
            return bool(self._pods)

    def _leave_line(self) -> None:
        if self._lease is None:
            return
        try:
            self._lease.give()
        except DBAPIError as error:  # Its place then expires.
            _log.warning("gang %s cannot give its turn on: %s", self._name, error)

    def _note_waiting(self) -> None:
        """Record what the gang's pods wait for, if the reason of any of them is known."""
        nodes = len(self._pods)
        waiting = [
            (number, reason)
            for number, pod in enumerate(self._pods)
            if (reason := self._reasons.get(pod.name))
        ]
        if waiting:
            number, reason = min(waiting, key=lambda entry: not self._pods[entry[0]].stuck)
            self._note(f"{len(waiting)} of the gang's {nodes} pods cannot start; node {number}: {reason}")

    def _note(self, reason: str) -> None:
        self._why = reason
        if not self.started:
            self._waiting.note(reason)

    # How it trains and ends.

    def _read_mailbox(self, timeout: float) -> Message | None:
        try:
            message = self._mailbox.receive(timeout)
            if message is None:
                return None
            return self._trusted.check(message)
        except InvalidInput as error:
            return Raised(f"gang {self._name}: {error}", final=True, checkpoint=None)

    def _watch(self) -> None:
        for pod in self._pods:
            pod.tend()
        if self._image is not None:
            self._image.note(self._pods[0].image_digest)
        self._tend_leaving()
        ends = [self._end_of(node) for node in range(len(self._pods))]
        if not any(end.is_wrong for end in ends):
            self._look_for_more()
            self._over = all(pod.ended for pod in self._pods) and self._is_quiet()
            return
        self._broken_at = self._broken_at or time.monotonic()
        self._has_hung = any(end.hang is not None for end in ends)
        within = _VERDICT_SECONDS
        if self._has_hung:
            within = _HANG_SECONDS
        if all(end.is_known for end in ends) or time.monotonic() - self._broken_at > within:
            self._last = verdict(ends)
            self._over = True
            self._broken = True

    def _is_quiet(self) -> bool:
        """Whether no last message has come in the time that it may take."""
        self._quiet_since = self._quiet_since or time.monotonic()
        return time.monotonic() - self._quiet_since > _LAST_MESSAGE_SECONDS

    def _end_of(self, node: int) -> PodEnd:
        pod = self._pods[node]
        processes = self._resources.processes
        reported, message = self._store.end_of(pod.name)
        silence = self._store.silent_seconds(pod.name)
        silent_seconds: float | None = None
        if silence > self._lost_seconds() and not pod.ended:
            silent_seconds = silence
        return PodEnd(
            pod.name,
            node,
            (node * processes, (node + 1) * processes - 1),
            reported=reported,
            message=message,
            hang=self._store.hang_of(pod.name),
            signalled=self._store.was_signalled(pod.name),
            termination=pod.known_termination,
            silent_seconds=silent_seconds,
        )

    def _lost_seconds(self) -> float:
        """After how many seconds without a beat a pod is lost; fewer if the gang is broken already."""
        if self._has_hung:
            return _HUNG_BEAT_SECONDS
        if self._broken_at is None:
            return BEAT_LOST_SECONDS
        return _BROKEN_BEAT_SECONDS

    def _look_for_more(self) -> None:
        """If the gang has fewer nodes than it wants, let a pod wait for one more, to begin again with it."""
        now = time.monotonic()
        if self._probe is not None:
            self._probe.tend()
            self.outgrown = self.outgrown or self._probe.placed
        if self._lease is None or now - self._looked_for_others < _PLACE_LOOK_SECONDS:
            return
        self._looked_for_others = now
        try:
            wanted = self._lease.is_wanted()
        except DBAPIError as error:
            _log.warning("gang %s cannot see whether another one wants to form: %s", self._name, error)
            return
        may = gang_rules.may_look_for_more(
            len(self._pods), self._resources.nodes, now - self._formed_at, wanted=wanted
        )
        if self._probe is None and may:
            self._probe = self._new_pod(len(self._pods))
        elif self._probe is not None and (self._probe.ended or (wanted and not self._probe.placed)):
            self._leaving.append(self._probe)
            self._probe = None

    def _end(self, reason: str, *, own_fault: bool) -> None:
        self._over = True
        self._termination = Termination(reason, own_fault)
