"""Reruns a trial in a pod of the recorded image on this cluster.

The pod first looks around and reports its environment, and then trains. If the trial was on several nodes, a
gang of other pods trains instead (:mod:`resources.execution.kubernetes.rerun_gang`).
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from halving import Store
from halving.errors import InvalidInput, NotFound
from halving.rerun.pods import COMMAND, PodRerun, RerunFailed
from halving.trial.mailbox import VARIABLE, Mailbox, mail_folder, post_task
from halving.trial.messages import Granted, Message, Raised, Ready, Stopped
from resources.catalog import Catalog
from resources.catalog.opening import open_catalog
from resources.execution.kubernetes import api
from resources.execution.kubernetes.cluster_config import ClusterConfig, load_cluster
from resources.execution.kubernetes.pod_manifests import (
    POD_OF_RERUN,
    TRIAL_LABEL,
    check_resources,
    label_value,
    queue_of,
    trial_manifest,
)
from resources.execution.kubernetes.pod_status import is_about_image, is_image_gone, reason_kind
from resources.execution.kubernetes.rerun_gang import no_end, prepare_gang, train_gang
from resources.execution.kubernetes.watched_pod import WatchedPod, pod_name
from resources.sweep_spec.requirements import AttemptResources

_RECEIVE_SECONDS = 1.0
_DIGEST_SECONDS = 10.0  # for the cluster to say which image a pod that has spoken runs
# Kubernetes' own words (RBAC). They are needed because a spent quota, which may be free later, is a 403 as
# well.
_NO_RIGHT = "cannot create resource"
_Answer = TypeVar("_Answer")


class RerunPods:
    """Reruns in pods of this cluster; implements :class:`halving.rerun.pods.Pods`.

    Args:
        cluster: its settings; a rerun's pods get what the pods of a trial with an image of its own get.
        catalog_url: of the catalog in which gangs wait for their turn, as in
            :func:`resources.catalog.opening.open_catalog`.
    """

    def __init__(self, cluster: ClusterConfig, catalog_url: str | None = None) -> None:
        self._cluster = cluster
        self._catalog_url = catalog_url

    def train(
        self,
        store: Store,
        rerun: PodRerun,
        ready: Callable[[Ready, str | None], None],
        tell: Callable[[str], None],
    ) -> None:
        resources = _parse_resources(rerun.resources, rerun.rerun_of)
        cluster = self._cluster.of_project(rerun.project, lambda: open_catalog(store, self._catalog_url))
        check_resources(resources, cluster)
        is_gang = resources.nodes > 1
        queue = queue_of(resources, cluster)
        # Gangs wait in the catalog for their turn, unless a queue admits them.
        line: Catalog | None = None
        if is_gang and queue is None:
            line = open_catalog(store, self._catalog_url)
        owner = _ask_cluster(api.own_reference)
        # The first pod of a gang's rerun only looks around. It has a mailbox of its own, because it may still
        # be ending when the gang trains.
        attempt = 1
        if is_gang:
            attempt = 0
        folder = mail_folder(rerun.project, rerun.run, attempt)
        pod = _StartedPod(store, rerun, resources, cluster, owner, tell, folder)
        try:
            ready(*pod.look_around())
            if not is_gang:
                pod.train()
        finally:
            pod.close()
        if is_gang:
            train_gang(
                prepare_gang(store, rerun, resources, cluster, line, owner, tell),
                rerun,
                outside=owner is None,
            )


def rerun_pods(catalog_url: str | None = None) -> RerunPods | None:
    """Reruns in pods of this cluster; None if there is no cluster.

    Args:
        catalog_url: as in :class:`RerunPods`.

    Raises:
        InvalidInput: as :func:`resources.execution.kubernetes.cluster_config.load_cluster`.
    """
    cluster = load_cluster()
    if not cluster:
        return None
    return RerunPods(cluster, catalog_url)


class _StartedPod:
    """The pod of one rerun, from its manifest to its last message."""

    def __init__(
        self,
        store: Store,
        rerun: PodRerun,
        resources: AttemptResources,
        cluster: ClusterConfig,
        owner: dict[str, Any] | None,
        tell: Callable[[str], None],
        folder: str,
    ) -> None:
        self._rerun = rerun
        self._tell = tell
        self._reasons: list[str] = []  # why it did not start, the newest last
        trial = rerun.rerun_of.partition("/")[2]
        self._mailbox = Mailbox(store, folder, sends="worker", reads="trial")
        manifest = trial_manifest(
            rerun.image,
            resources,
            cluster,
            name=pod_name(trial, "rerun"),
            labels={TRIAL_LABEL: label_value(trial), **POD_OF_RERUN},
            command=list(COMMAND),
            env={**rerun.variables, "HALVING_ROOT": rerun.request.context["root"], VARIABLE: folder},
            owner=owner,
        )
        self._pod = WatchedPod(
            manifest,
            resources,
            self._mailbox,
            post_task=lambda: post_task(store, folder, rerun.request.to_bytes()),
            on_waiting=self._waits,
        )
        # This fails before anything is written, because waiting does not mend a wrong KUBECONFIG.
        _ask_cluster(lambda: api.read_pod(self._pod.name))

    def look_around(self) -> tuple[Ready, str | None]:
        """Start the pod; return its description of itself, and the digest of its image if that is known."""
        self._pod.start()
        message = self._next()
        if not isinstance(message, Ready):  # It may have trained, for example, without describing itself.
            raise self._unexpected_message(message)
        return message, self._pod.wait_for_image_digest(_DIGEST_SECONDS)

    def train(self) -> None:
        """Let the pod train after it has looked around."""
        self._mailbox.send(Granted(self._rerun.request.epochs, complete=True))
        message = self._next()
        if not isinstance(message, Stopped):
            raise self._unexpected_message(message)

    def close(self) -> None:
        self._pod.close()

    def _next(self) -> Message | Granted | Ready:
        """Wait for the next message.

        Raises:
            NotFound: the cluster cannot get the image.
            InvalidInput: this process may not create the pod.
            RerunFailed: the pod ended without a message, did not start in time, or sent an invalid one.
        """
        while True:
            ended = self._pod.ended
            try:
                message = self._pod.receive(_RECEIVE_SECONDS)
            except InvalidInput as error:  # Any image may run in the pod.
                raise self._failure(str(error)) from None
            if message is not None:
                return message
            if any(map(is_image_gone, self._reasons)):
                reasons = "; ".join(dict.fromkeys(filter(is_about_image, self._reasons)))
                raise NotFound(
                    f"the image {self._rerun.image} of run {self._rerun.rerun_of} cannot be had by this "
                    f"cluster any more: {reasons}. Push it again under that name, or give the cluster the "
                    "right to pull it"
                )
            if refused := next((reason for reason in self._reasons if _NO_RIGHT in reason), None):
                raise InvalidInput(
                    f"a rerun in an image needs the right to create pods: {refused}. Start the job rerun, "
                    "which has it, or take another KUBECONFIG"
                )
            if ended:
                raise self._failure(self._pod.termination().reason)

    def _waits(self, reason: str | None) -> None:
        if reason is None:
            return
        if reason_kind(reason) not in map(reason_kind, self._reasons):
            self._tell(f"the pod waits to start: {reason}")
        self._reasons.append(reason)

    def _unexpected_message(self, message: Message | Granted | Ready) -> RerunFailed:
        if isinstance(message, Raised):
            return self._failure(f"it raised:\n{message.error}")
        return self._failure(f"{type(message).__name__} came from it, which is not for a rerun to send here")

    def _failure(self, why: str) -> RerunFailed:
        return no_end(self._rerun, "a pod", why)


def _parse_resources(recorded: Mapping[str, Any], rerun_of: str) -> AttemptResources:
    try:
        return AttemptResources.model_validate(recorded)
    except ValidationError as error:
        raise InvalidInput(
            f"the resources in the record of {rerun_of} are not accepted by this version of halving: {error}"
        ) from None


def _ask_cluster(question: Callable[[], _Answer]) -> _Answer:
    """Ask the cluster's API.

    Raises:
        InvalidInput: it refuses, or does not answer.
    """
    from kubernetes.client import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return question()
    except ApiException as error:
        problem = f"answers {error.status}: {api.message_of(error)}"
    except (HTTPError, OSError) as error:
        problem = f"does not answer: {error}"
    raise InvalidInput(
        f"a rerun in an image needs a cluster, and its API {problem}. KUBECONFIG = "
        f"{os.environ.get('KUBECONFIG')!r} has to be the configuration of one that may be asked for pods"
    )
