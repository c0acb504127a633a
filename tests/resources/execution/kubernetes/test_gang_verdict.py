"""Why a gang has ended: the pod that was the reason, whatever the others say of the connection to it."""

from dataclasses import replace
from typing import Any

import pytest

from halving.distributed.hang import Hang, describe
from halving.trial.messages import Interrupted, Message, Raised
from resources.execution.kubernetes.gang_verdict import PodEnd, verdict
from resources.scheduling.termination import Termination

BROKEN = Raised(
    "Traceback …\nRuntimeError: [gloo/transport/tcp/pair.cc:547] Connection closed by peer [10.0.0.2]:4711",
    False,
    "sha256:c",
)
HANG = Hang("run.report()", 600.0, 0.0, (2, 3), (0, 1), {0: "at a", 1: None, 2: "at b", 3: "at b"})
HUNG = Raised(describe(HANG), False, None)
LATE = Raised("Traceback …\nValueError: the loader was closed", False, None)
OWN = Raised("Traceback …\nValueError: negative", False, None)
KILLED = Raised("rank 3 of 2 was killed by SIGKILL", False, None)
OOM = Termination("pod b was OOMKilled: it ran out of memory (resources.memory = 32Gi)", own_fault=True)
DELETED = Termination("pod b was deleted", own_fault=False)
CRASHED = Termination("pod b ended with exit code 1: ImportError", own_fault=True)


def ends(first: dict[str, Any], second: dict[str, Any]) -> list[PodEnd]:
    return [PodEnd("a", 0, (0, 1), **first), PodEnd("b", 1, (2, 3), **second)]


def report_of(message: Message | None, hang: Hang | None = None) -> dict[str, Any]:
    return {"reported": True, "message": message, "hang": hang}


@pytest.mark.parametrize(
    ("first", "second", "kind", "reason"),
    [
        (
            report_of(BROKEN),
            {"termination": OOM} | report_of(KILLED),
            Raised,
            f"node 1 of the gang (ranks 2 to 3): {OOM.reason}",
        ),
        (
            report_of(BROKEN),
            {"termination": DELETED},
            Interrupted,
            "node 1 of the gang (ranks 2 to 3): pod b was deleted",
        ),
        (
            report_of(BROKEN),
            {"silent_seconds": 31.0},
            Interrupted,
            "node 1 of the gang (ranks 2 to 3): pod b has not been heard of for 31 s",
        ),
        (
            report_of(None),
            {"signalled": True} | report_of(None),
            Interrupted,
            "pod b received SIGTERM; all ranks saved a checkpoint at the same step",
        ),
        (
            report_of(None),
            {"signalled": True, "termination": DELETED} | report_of(None),
            Interrupted,
            "pod b received SIGTERM; all ranks saved a checkpoint at the same step",
        ),
        (report_of(BROKEN), {"signalled": True, "termination": DELETED}, Interrupted, "pod b was deleted"),
        (
            report_of(BROKEN),
            {"signalled": True} | report_of(None),
            Interrupted,
            "pod b received SIGTERM; the gang could not save a checkpoint",
        ),
        (
            report_of(BROKEN),
            report_of(KILLED),
            Raised,
            "node 1 of the gang (ranks 2 to 3): rank 3 of 2 was killed by SIGKILL",
        ),
        (
            report_of(BROKEN),
            report_of(OWN),
            Raised,
            "node 1 of the gang (ranks 2 to 3): Traceback …\nValueError: negative",
        ),
        (
            report_of(OWN),
            report_of(BROKEN),
            Raised,
            "node 0 of the gang (ranks 0 to 1): Traceback …\nValueError: negative",
        ),
        (
            report_of(BROKEN),
            report_of(HUNG, HANG),
            Raised,
            "ranks 0 and 1 did not come to run.report() within 600 s (resources.collective_timeout_seconds)",
        ),
        (
            report_of(LATE),
            report_of(HUNG, HANG),
            Raised,
            "node 0 of the gang (ranks 0 to 1): Where each rank was when the collective was given up",
        ),
        ({}, {"hang": HANG}, Raised, "  rank 1 (did not come):\n    it did not answer"),
        (
            {"hang": replace(HANG, stacks={1: "at c"})},
            {"hang": HANG},
            Raised,
            "  rank 1 (did not come):\n    at c\n",
        ),
        (
            {"silent_seconds": 6.0},
            {"hang": HANG},
            Interrupted,
            "node 0 of the gang (ranks 0 to 1): pod a has not been heard of for 6 s",
        ),
        (
            report_of(HUNG, HANG),
            report_of(KILLED),
            Raised,
            "node 1 of the gang (ranks 2 to 3): rank 3 of 2 was killed by SIGKILL",
        ),
        (
            report_of(BROKEN),
            {},
            Raised,
            "node 0 of the gang (ranks 0 to 1): Traceback …\nRuntimeError: [gloo",
        ),
        (
            {},
            {"termination": CRASHED},
            Raised,
            "node 1 of the gang (ranks 2 to 3): pod b ended with exit code 1: ImportError",
        ),
        (
            report_of(Interrupted("the store was unavailable")),
            {},
            Interrupted,
            "node 0 of the gang (ranks 0 to 1): the store was unavailable",
        ),
    ],
)
def test_the_reason_is_the_pod_that_was_lost_and_not_what_the_others_raised(
    first: dict[str, Any], second: dict[str, Any], kind: type, reason: str
) -> None:
    message = verdict(ends(first, second))
    assert isinstance(message, kind)
    assert reason in (message.error if isinstance(message, Raised) else message.reason)  # type: ignore[union-attr]


def test_a_final_failure_stays_final_and_keeps_its_checkpoint() -> None:
    final = Raised("Traceback …\nhalving.errors.Diverged: rank 2 of 4 has NaN", True, "sha256:c")
    message = verdict(ends(report_of(BROKEN), report_of(final)))
    assert isinstance(message, Raised)
    assert (message.final, message.checkpoint) == (True, "sha256:c")


def test_who_killed_a_rank_is_waited_for_because_only_the_cluster_knows() -> None:
    assert not PodEnd("b", 1, (2, 3), reported=True, message=KILLED).is_known
    assert PodEnd("b", 1, (2, 3), reported=True, message=KILLED, termination=OOM).is_known
    assert PodEnd("b", 1, (2, 3), reported=True, message=BROKEN).is_known


def test_where_each_rank_was_is_put_together_of_what_all_pods_say() -> None:
    message = verdict(ends({"hang": replace(HANG, stacks=HANG.stacks | {1: "at c"})}, {"hang": HANG}))
    assert message == Raised(
        "node 0 of the gang (ranks 0 to 1): Where each rank was when the collective was given up:\n"
        "  rank 0 (did not come):\n    at a\n  rank 1 (did not come):\n    at c\n  ranks 2 and 3 "
        "(waited):\n    at b\n"
        "ranks 0 and 1 did not come to run.report() within 600 s (resources.collective_timeout_seconds); "
        "ranks 2 and 3 had waited there since 00:00:00 UTC",
        final=False,
        checkpoint=None,
    )
    assert verdict(ends({"hang": HANG}, {"hang": replace(HANG, stacks=HANG.stacks | {1: "at c"})})) == message
