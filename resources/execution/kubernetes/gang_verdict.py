"""Why a gang has ended, from the reports of its pods and of the cluster, as pure functions.

When a pod is lost, the ranks of the others raise errors, because the connection to it breaks. They report
that within milliseconds, while the cluster needs seconds, or a minute, to report that a node is gone. The
reason is the pod that was lost, and not an error of the others.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from halving.distributed.hang import Hang, describe
from halving.trial.gang import is_wrong
from halving.trial.messages import Interrupted, Message, Raised
from resources.scheduling.termination import Termination

# Errors of ranks in a collective because another rank is gone, in the words of gloo, NCCL and the store.
_BROKEN = re.compile(
    (
        r"connection (was )?(closed|reset|refused)|broken "
        r"pipe|socket|gloo|nccl|DistNetworkError|DistBackendError|timed? ?out"
    ),
    re.IGNORECASE,
)
_KILLED = "was killed by"


@dataclass(frozen=True)
class PodEnd:
    """The state of a pod of a gang that has ended or is about to end.

    Attributes:
        pod: its name.
        node: its number in the gang, from 0.
        ranks: the first and the last rank that it ran.
        reported: whether it has reported how its ranks ended.
        message: its report; None after a SIGTERM.
        hang: the collective that its ranks have given up; perhaps those of another pod did so before.
        signalled: whether it has received SIGTERM.
        termination: why it ended, by the cluster; None while it runs, or if it succeeded.
        silent_seconds: since its last beat, if that is too long; else None.
    """

    pod: str
    node: int
    ranks: tuple[int, int]
    reported: bool = False
    message: Message | None = None
    hang: Hang | None = None
    signalled: bool = False
    termination: Termination | None = None
    silent_seconds: float | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether it cannot go on."""
        failed = self.reported and is_wrong(self.message)
        return (
            failed or self.hang is not None or self.termination is not None or self.silent_seconds is not None
        )

    @property
    def is_known(self) -> bool:
        """Whether it is clear how it ended; only the cluster can say who killed a rank."""
        killed = isinstance(self.message, Raised) and _was_killed(self.message)
        return (
            (self.reported and not killed) or self.termination is not None or self.silent_seconds is not None
        )

    def with_origin(self, reason: str) -> str:
        """A reason, with the node and the ranks of this pod in front."""
        first, last = self.ranks
        ranks = f"rank {first}"
        if first != last:
            ranks = f"ranks {first} to {last}"
        return f"node {self.node} of the gang ({ranks}): {reason}"


def verdict(ends: Sequence[PodEnd]) -> Message:
    """Decide how the attempt has ended: the trial crashed (``Raised``), or was preempted (``Interrupted``).

    The reason is the first of these that applies: a pod ran out of memory; one was deleted, evicted or lost;
    one was asked to end; a rank was killed; a collective hung; a rank raised an error by itself; a rank
    raised an error because the gang was broken.
    """
    terminated = [(end, end.termination) for end in ends if end.termination is not None]
    for end, termination in terminated:
        if "OOMKilled" in termination.reason:
            return _crash_of(end, termination.reason)
    for end, termination in terminated:
        # A pod that has saved and reported may be deleted by now; that it was deleted says less.
        if not termination.own_fault and not (end.signalled and end.reported):
            return Interrupted(end.with_origin(termination.reason))
    for end in ends:
        if end.silent_seconds is not None and not end.reported:
            return Interrupted(
                end.with_origin(
                    f"pod {end.pod} has not been heard of for {end.silent_seconds:.0f} s; its node is "
                    "lost, or cut off"
                )
            )
    signalled = [end for end in ends if end.signalled]
    if signalled:
        saved = all(end.reported and end.message is None for end in ends)
        how = "all ranks saved a checkpoint at the same step"
        if not saved:
            how = "the gang could not save a checkpoint together"
        return Interrupted(signalled[0].with_origin(f"pod {signalled[0].pod} received SIGTERM; {how}"))
    raised = [(end, end.message) for end in ends if end.reported and isinstance(end.message, Raised)]
    hangs = [(end, end.hang) for end in ends if end.hang is not None]
    if hangs and not any(_was_killed(message) for _, message in raised):
        return _verdict_of_hang(ends, hangs)
    for is_first in (_was_killed, _is_own, lambda _: True):
        for end, message in raised:
            if is_first(message):
                return replace(message, error=end.with_origin(message.error))
    for end, termination in terminated:
        return _crash_of(end, termination.reason)
    interrupted = next((end for end in ends if end.reported and isinstance(end.message, Interrupted)), None)
    if interrupted and isinstance(interrupted.message, Interrupted):
        return Interrupted(interrupted.with_origin(interrupted.message.reason))
    return Interrupted("the pods of the gang ended without a word")


def _crash_of(end: PodEnd, why: str) -> Raised:
    return Raised(end.with_origin(why), final=False, checkpoint=None)


def _verdict_of_hang(ends: Sequence[PodEnd], hangs: Sequence[tuple[PodEnd, Hang]]) -> Raised:
    """Name the ranks that did not come to a collective, and where each rank was, as far as it is known.

    Errors of ranks that come too late are no reason.
    """
    end, hang = hangs[0]
    stacks = {
        rank: next((other.stacks[rank] for _, other in hangs if other.stacks.get(rank)), None)
        for rank in hang.stacks
    }
    for pod_end in ends:
        first, last = pod_end.ranks
        if any(first <= rank <= last for rank in hang.absent):
            end = pod_end
            break
    return _crash_of(end, describe(replace(hang, stacks=stacks)))


def _was_killed(message: Raised) -> bool:
    return _KILLED in message.error


def _is_own(message: Raised) -> bool:
    """Whether a rank raised an error by itself, to judge by the error's last line."""
    return message.final or not _BROKEN.search(_last_line(message))


def _last_line(message: Raised) -> str:
    return message.error.strip().rpartition("\n")[2]
