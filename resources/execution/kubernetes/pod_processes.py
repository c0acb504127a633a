"""Makes the pods of trials with an image of their own: one for each attempt, or a gang of several."""

from functools import partial
from typing import Any

from halving import Store
from halving.records.run_record import RunRecords
from halving.trial.context import TrialContext
from halving.trial.gang import VARIABLE as GANG
from halving.trial.gang import GangPlace
from halving.trial.mailbox import VARIABLE as MAILBOX
from halving.trial.mailbox import Mailbox, mail_folder, post_task
from halving.trial_process.pod import Task
from resources.execution.kubernetes import api
from resources.execution.kubernetes.cluster_config import ClusterConfig
from resources.execution.kubernetes.fence import Fence
from resources.execution.kubernetes.gang_manifests import gang_annotations, gang_labels, gang_policies
from resources.execution.kubernetes.gang_process import GangProcess
from resources.execution.kubernetes.gang_store import GangStore
from resources.execution.kubernetes.image_note import ImageNote
from resources.execution.kubernetes.pod_manifests import POD_OF_TRIAL, labels_of, queue_of, trial_manifest
from resources.execution.kubernetes.trial_pod import PodProcess
from resources.execution.kubernetes.trusted_messages import TrustedMessages
from resources.execution.kubernetes.watched_pod import pod_name
from resources.execution.local_processes import TrialProcess, hash_seed, thread_limits
from resources.scheduling.assignment import Assignment
from resources.scheduling.forming_lease import FormingLease
from resources.scheduling.scheduler import Scheduler


class PodProcesses:
    """Trials of a sweep as pods.

    Args:
        cluster: the cluster's settings.
        scheduler: records why a pod does not start.
        store: the one that trials write to.
    """

    def __init__(self, cluster: ClusterConfig, scheduler: Scheduler, store: Store) -> None:
        self._cluster = cluster.of_project(scheduler.spec.project, lambda: scheduler.catalog)
        self._scheduler = scheduler
        self._store = store
        self._owner = api.own_reference()

    def prepare(self, assignment: Assignment, context: TrialContext) -> TrialProcess:
        spec = self._scheduler.spec
        folder = mail_folder(context.project, context.run, context.attempt)
        resources = spec.resources.at(assignment.granted)
        task = Task(context, spec.trained_by, assignment.granted, resources.threads, resources.processes)
        mailbox = Mailbox(self._store, folder, sends="worker", reads="trial")
        options: dict[str, Any] = {
            "post_task": lambda: post_task(self._store, folder, task.to_bytes()),
            "on_waiting": lambda reason: self._scheduler.note_waiting(assignment, reason),
            "image": ImageNote(
                RunRecords(self._store, context.project, context.run), context.attempt, str(spec.image)
            ),
        }
        if resources.nodes > 1:
            return self._gang(assignment, folder, mailbox, options)
        return PodProcess(
            self._manifest(assignment, folder, f"a{assignment.attempt}"),
            spec,
            mailbox,
            granted=assignment.granted,
            **options,
        )

    def _gang(
        self, assignment: Assignment, folder: str, mailbox: Mailbox, options: dict[str, Any]
    ) -> GangProcess:
        spec = self._scheduler.spec
        name = pod_name(assignment.key, f"a{assignment.attempt}")
        resources = spec.resources.at(assignment.granted)
        queue = queue_of(spec.resources, self._cluster)
        store = GangStore()
        labels = labels_of(assignment) | POD_OF_TRIAL | gang_labels(name, queue)
        annotations = gang_annotations(resources.nodes, queue)

        def manifest(node: int) -> dict[str, Any]:
            made = self._manifest(
                assignment, folder, f"a{assignment.attempt}-n{node}", labels=labels, annotations=annotations
            )
            place = GangPlace(store.host, store.port, made["metadata"]["name"])
            made["spec"]["containers"][0]["env"].append({"name": GANG, "value": place.to_variable()})
            return made

        min_nodes = spec.fewest_nodes(assignment.granted)
        lease: FormingLease | None = None
        if queue:
            min_nodes = resources.nodes  # A queue admits all pods of its group, and never fewer.
        else:
            lease = FormingLease(self._scheduler.catalog, f"{assignment.key}/a{assignment.attempt}")
        return GangProcess(
            name,
            manifest,
            resources,
            min_nodes,
            mailbox,
            store,
            TrustedMessages.of_spec(spec, assignment.granted),
            lease,
            Fence(labels, resources.grace_seconds),
            policies=partial(
                gang_policies,
                name,
                store.port,
                self._owner,
                host_network=self._cluster.trial_pods.gangs.host_network,
            ),
            **options,
        )

    def _manifest(
        self,
        assignment: Assignment,
        folder: str,
        ending: str,
        *,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        spec = self._scheduler.spec
        resources = spec.resources.at(assignment.granted)
        return trial_manifest(
            str(spec.image),
            resources,
            self._cluster,
            name=pod_name(assignment.key, ending),
            labels=labels or labels_of(assignment) | POD_OF_TRIAL,
            annotations=annotations or {},
            command=["python3", "-m", "halving.trial_process.pod"],
            env={"HALVING_ROOT": self._store.root, MAILBOX: folder}
            | thread_limits(resources)
            | hash_seed(bool(spec.deterministic)),
            owner=self._owner,
        )
