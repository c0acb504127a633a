"""A gang of which a pod says that a collective hung, as its worker has it.

In its store, a real one, the test speaks for the pods.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from halving import Store
from halving.distributed.hang import Hang, describe
from halving.trial import gang
from halving.trial.mailbox import Mailbox
from halving.trial.messages import Interrupted, Message, Raised
from halving.trial_process import gang as agent
from halving.trial_process import rank_stacks
from resources.execution.kubernetes import gang_process, gang_store
from resources.execution.kubernetes.gang_process import GangProcess
from resources.execution.kubernetes.gang_store import GangStore
from resources.execution.kubernetes.trusted_messages import TrustedMessages
from resources.sweep_spec.requirements import AttemptResources
from tests.resources.execution.kubernetes.cluster import Cluster

HANG = Hang("run.report()", 600.0, 0.0, (0,), (1,), {0: "at a", 1: None})


class Formed:
    """A gang of two pods of one rank each that trains, and what its pods say."""

    def __init__(self, store: Store) -> None:
        own = GangStore()
        self.process = GangProcess(
            "g",
            lambda node: {"metadata": {"name": f"pod-{node}", "labels": {}}},
            AttemptResources(nodes=2),
            2,
            Mailbox(store, "mail", sends="worker", reads="trial"),
            own,
            TrustedMessages(["score"], 3),
            None,
            None,
            policies=lambda _: [],
            post_task=lambda: None,
            on_waiting=lambda _: None,
        )
        self.says = TCPStore(
            own.host, own.port, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=10)
        )
        for node in range(2):
            self.says.set(gang.here_key(f"pod-{node}"), "")
        self.process.start()
        while not self.process.started:
            self.process.receive(0.0)

    def until_it_ends(self, *, beating: bool) -> Message | None:
        """How it ended; meanwhile the second pod beats."""
        while self.process.alive:
            if beating:
                self.says.add(gang.beat_key("pod-1"), 1)
            if message := self.process.receive(0.01):
                return message
        return self.process.receive(0.0)


@pytest.fixture
def form_gang(cluster: Cluster, store: Store, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Formed]:
    cluster.status = {"phase": "Running"}
    monkeypatch.setattr(gang_store, "own_address", lambda: "127.0.0.1")
    monkeypatch.setattr(gang_process.api, "own_pod", lambda: None)
    monkeypatch.setattr(gang_process, "_VERDICT_SECONDS", math.inf)
    monkeypatch.setattr(gang_process, "_HANG_SECONDS", 0.1)
    return lambda: Formed(store)


def test_a_gang_whose_collective_hung_ends_although_a_pod_that_beats_says_nothing(
    form_gang: Callable[[], Formed],
) -> None:
    gang_of_two = form_gang()
    gang_of_two.says.set(gang.hung_key("pod-0"), HANG.to_text())
    ended = gang_of_two.until_it_ends(beating=True)
    assert ended == Raised(f"node 1 of the gang (rank 1): {describe(HANG)}", final=False, checkpoint=None)


def test_a_lost_pod_is_a_better_reason_than_the_collective_that_it_missed(
    form_gang: Callable[[], Formed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gang_process, "_HUNG_BEAT_SECONDS", 0.0)
    gang_of_two = form_gang()
    gang_of_two.says.set(gang.hung_key("pod-0"), HANG.to_text())
    gang_of_two.says.set(
        gang.ended_key("pod-0"), gang.end_to_bytes(Raised(describe(HANG), False, None)).decode()
    )
    ended = gang_of_two.until_it_ends(beating=False)
    assert isinstance(ended, Interrupted)
    assert ended.reason.startswith("node 1 of the gang (rank 1): pod pod-1 has not been heard of for")


@pytest.mark.parametrize(
    "said",
    [
        "[]",
        "{",
        '{"stacks": 1}',
        replace(HANG, since=1e300).to_text(),
        replace(HANG, since=math.nan).to_text(),
    ],
)
def test_what_is_no_hang_is_no_reason(form_gang: Callable[[], Formed], said: str) -> None:
    gang_of_two = form_gang()
    gang_of_two.says.set(gang.hung_key("pod-0"), said)
    for node in range(2):
        gang_of_two.says.set(
            gang.ended_key(f"pod-{node}"),
            gang.end_to_bytes(Raised("ValueError: negative", False, None)).decode(),
        )
    ended = gang_of_two.until_it_ends(beating=True)
    assert ended == Raised("node 0 of the gang (rank 0): ValueError: negative", final=False, checkpoint=None)


def test_a_very_long_error_of_a_pod_is_read_to_its_end(form_gang: Callable[[], Formed]) -> None:
    gang_of_two = form_gang()
    for node in range(2):
        long = Raised("a frame 🏖\n" * 100_000 + "ValueError: negative", False, None)
        gang_of_two.says.set(gang.ended_key(f"pod-{node}"), gang.end_to_bytes(long).decode())
    ended = gang_of_two.until_it_ends(beating=True)
    assert isinstance(ended, Raised)
    assert not ended.final
    assert ended.error.endswith("\nValueError: negative")


def test_a_gang_ends_within_its_timeout_and_five_seconds() -> None:
    given_up = agent._GIVEN_UP_SECONDS + agent._MONITOR_SECONDS
    heard = gang_process._BROKEN_LOOK_SECONDS + 1.0  # what a worker waits for a message at a time
    assert given_up + heard + gang_process._HANG_SECONDS < 5
    answered = gang.BEAT_SECONDS + agent._MONITOR_SECONDS + rank_stacks._WAIT_SECONDS
    assert answered < gang_process._HANG_SECONDS, "the other pods say meanwhile where their ranks are"
    silent = (
        1.0 + gang_process._HANG_SECONDS - heard
    )  # of a pod that was lost when the others entered the collective; 1 s is the shortest timeout
    assert 3 * gang.BEAT_SECONDS < gang_process._HUNG_BEAT_SECONDS
    assert silent + given_up > gang_process._HUNG_BEAT_SECONDS, (
        "such a pod is known to be lost before the gang is ended as hung"
    )
