"""The interface of a cluster for reruns; the application implements it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from halving.errors import HalvingError
from halving.rerun.execution import TrialRequest
from halving.store.store import Store
from halving.trial.messages import Ready

COMMAND = ("python3", "-m", "halving.rerun.trial_process")
"""The command of the pod, whose request is in the mailbox that its environment names."""


class RerunFailed(HalvingError, RuntimeError):
    """The process of the rerun ended without a run that can be compared: none, a killed or a failed one."""


@dataclass(frozen=True, kw_only=True)
class PodRerun:
    """One rerun in a pod, or in one for each node.

    Attributes:
        rerun_of: ``project/run`` of the recorded trial.
        project, run: those of the new run.
        image: the pod's image.
        resources: the pod's requests, as in a sweep's spec, with its number of ``nodes``.
        variables: environment variables that affect the results (``PYTHONHASHSEED``, the numbers of threads).
        request: the request for its process, through the store.
    """

    rerun_of: str
    project: str
    run: str
    image: str
    resources: Mapping[str, Any]
    variables: Mapping[str, str]
    request: TrialRequest


class Pods(Protocol):
    """A cluster that is available."""

    def train(
        self,
        store: Store,
        rerun: PodRerun,
        ready: Callable[[Ready, str | None], None],
        tell: Callable[[str], None],
    ) -> None:
        """Start a pod, have it train, and return when it has.

        In any case the cluster is asked to delete the pod afterwards. A trial on several nodes is trained by
        as many pods, after one more has reported its environment.

        Args:
            ready: called once, before it trains, with the pod's report and with the digest of its image, if
                the cluster has that. What it raises ends the pod and is raised.
            tell: called with each line on why the pod does not start yet.

        Raises:
            NotFound: the image cannot be pulled.
            InvalidInput: the cluster cannot be reached, does not have the resources, or gives no right to
                create pods.
            RerunFailed: the cluster does not accept the pod, or it did not start in time, ended before its
                training had, or sent a message that it must not send; the message has the reason.
        """
