"""Reruns a trial on several nodes with a gang of as many pods, in one go to the recorded epoch."""

from collections.abc import Callable
from functools import partial
from typing import Any

from halving import Store
from halving.rerun.pods import PodRerun, RerunFailed
from halving.trial.context import TrialContext
from halving.trial.gang import VARIABLE as GANG
from halving.trial.gang import GangPlace
from halving.trial.mailbox import VARIABLE as MAILBOX
from halving.trial.mailbox import Mailbox, mail_folder, post_task
from halving.trial.messages import Granted, Raised, ReachedRung, ReturnedEarly, Stopped
from halving.trial_process.pod import Task
from resources.catalog import Catalog
from resources.execution.kubernetes.cluster_config import ClusterConfig
from resources.execution.kubernetes.gang_manifests import gang_annotations, gang_labels, gang_policies
from resources.execution.kubernetes.gang_process import GangProcess
from resources.execution.kubernetes.gang_store import GangStore
from resources.execution.kubernetes.pod_manifests import (
    POD_OF_RERUN,
    TRIAL_LABEL,
    label_value,
    queue_of,
    trial_manifest,
)
from resources.execution.kubernetes.trusted_messages import TrustedMessages
from resources.execution.kubernetes.watched_pod import pod_name
from resources.scheduling.forming_lease import FormingLease
from resources.sweep_spec.requirements import AttemptResources

_RECEIVE_SECONDS = 1.0


def prepare_gang(
    store: Store,
    rerun: PodRerun,
    resources: AttemptResources,
    cluster: ClusterConfig,
    catalog: Catalog | None,
    owner: dict[str, Any] | None,
    tell: Callable[[str], None],
) -> GangProcess:
    """Make a gang for a rerun, without starting it.

    Args:
        cluster: the settings for the rerun's project.
        catalog: in which all gangs wait for their turn to form; None if a queue (Kueue's) admits them.
        owner: the pod of this process, with which the gang's pods are deleted; None outside of the cluster.
        tell: gets the reasons why the gang has not started, line by line.
    """
    trial = rerun.rerun_of.partition("/")[2]
    request = rerun.request
    context = TrialContext.from_record(
        request.recorded, **request.context, provenance={"image": request.image}
    )
    task = Task(
        context, request.trainable, request.epochs, request.threads or resources.threads, resources.processes
    )
    folder = mail_folder(rerun.project, rerun.run, 1)
    name = pod_name(trial, "rerun")
    rendezvous = GangStore()
    queue = queue_of(resources, cluster)

    def waits(reason: str | None) -> None:
        if reason is not None:
            tell(f"the gang waits to start: {reason}")

    def manifest(node: int) -> dict[str, Any]:
        pod = pod_name(trial, f"rerun-n{node}")
        place = GangPlace(rendezvous.host, rendezvous.port, pod)
        return trial_manifest(
            rerun.image,
            resources,
            cluster,
            name=pod,
            labels={TRIAL_LABEL: label_value(trial), **POD_OF_RERUN, **gang_labels(name, queue)},
            annotations=gang_annotations(resources.nodes, queue),
            command=["python3", "-m", "halving.trial_process.pod"],
            env={
                **rerun.variables,
                "HALVING_ROOT": request.context["root"],
                MAILBOX: folder,
                GANG: place.to_variable(),
            },
            owner=owner,
        )

    lease: FormingLease | None = None
    if catalog:
        lease = FormingLease(catalog, f"{rerun.project}/{rerun.run}")
    return GangProcess(
        name,
        manifest,
        resources,
        resources.nodes,  # With fewer nodes it would not be the same training.
        Mailbox(store, folder, sends="worker", reads="trial"),
        rendezvous,
        TrustedMessages({*(rule.metric for rule in context.objectives), *context.bounded}, request.epochs),
        lease,
        None,
        policies=partial(
            gang_policies, name, rendezvous.port, owner, host_network=cluster.trial_pods.gangs.host_network
        ),
        post_task=lambda: post_task(store, folder, task.to_bytes()),
        on_waiting=waits,
    )


def train_gang(gang: GangProcess, rerun: PodRerun, *, outside: bool) -> None:
    """Train on all nodes, and return when that is done; the pods are deleted in any case.

    Args:
        outside: whether this process runs outside of the cluster.

    Raises:
        RerunFailed: the gang did not form in time, lost a pod, or raised an error; the message says which.
    """
    gang.start()
    try:
        _attend(gang, rerun, outside=outside)
    finally:
        gang.close()


def no_end(rerun: PodRerun, where: str, why: str) -> RerunFailed:
    """The error for a rerun without an end that could be compared."""
    return RerunFailed(
        f"the rerun of {rerun.rerun_of} in {where} of the image {rerun.image} came to no end that could be "
        f"compared: {why}"
    )


def _attend(gang: GangProcess, rerun: PodRerun, *, outside: bool) -> None:
    """Grant the gang all its epochs at once, and wait for its end."""
    while True:
        over = not gang.alive
        message = gang.receive(_RECEIVE_SECONDS)
        if isinstance(message, Stopped | ReturnedEarly):
            return
        if isinstance(message, ReachedRung):
            gang.answer(Granted(rerun.request.epochs, complete=True))
        elif isinstance(message, Raised):
            raise no_end(rerun, "pods", f"it raised:\n{message.error}")
        elif message is not None:
            raise no_end(rerun, "pods", message.reason)
        elif over:
            why = gang.termination().reason
            advice = ""
            if outside and gang.nodes and not gang.started:
                # A laptop may have an address that the pods cannot reach.
                advice = ". Its pods have to reach this machine: where they cannot, start the job rerun"
            raise no_end(rerun, "pods", f"{why}{advice}")
