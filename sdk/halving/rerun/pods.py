"""What a cluster has to do for a rerun: the SDK knows none, and the application brings it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from halving.errors import HalvingError
from halving.rerun.execution import TrialRequest
from halving.store.store import Store
from halving.trial.messages import Ready

COMMAND = ("python3", "-m", "halving.rerun.trial_process")
"""What the pod runs; it finds the rest in the mailbox that its environment names."""


class RerunFailed(HalvingError, RuntimeError):
    """The process of the rerun ended without a run that could be compared: none at all, or one that was
    killed or that raised.
    """


@dataclass(frozen=True, kw_only=True)
class PodRerun:
    """One rerun in a pod, or in one for each node.

    Attributes:
        rerun_of: ``project/run`` of the recorded trial.
        project, run: of the new run.
        image: what the pod runs.
        resources: what it asks for, as a sweep's spec has it; with its number of ``nodes``.
        variables: environment variables that decide what comes out (``PYTHONHASHSEED``, the numbers of
            threads).
        request: what its process is told through the store.
    """

    rerun_of: str
    project: str
    run: str
    image: str
    resources: Mapping[str, Any]
    variables: Mapping[str, str]
    request: TrialRequest


class Pods(Protocol):
    """A cluster at hand."""

    def train(
        self,
        store: Store,
        rerun: PodRerun,
        ready: Callable[[Ready, str | None], None],
        tell: Callable[[str], None],
    ) -> None:
        """Start a pod, have it train, and return when it has.

        However that ends, the cluster is asked to delete the pod. A trial on several nodes is trained by as
        many pods, once one more has looked around.

        Args:
            ready: called once, before it trains, with what the pod says of itself and with the digest of its
                image, if the cluster says that. What it raises ends the pod and is raised.
            tell: gets why the pod does not start yet, line by line.

        Raises:
            NotFound: the image cannot be had.
            InvalidInput: the cluster cannot be asked, does not have the resources, or gives no right to
                create pods.
            RerunFailed: the cluster does not accept the pod, or it did not start in time, ended before its
                training had, or sent what is not for it to send; the message has the reason.
        """
