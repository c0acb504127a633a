"""The cluster's settings: one YAML file beside Dagster's own configuration, named by ``HALVING_CLUSTER``.

A sweep's spec says what a trial needs (an a100, spot); the settings say what that means on this cluster
(labels, taints). Without the variable, trials run on the machine of their worker.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from halving.errors import InvalidInput
from resources.catalog import Catalog
from resources.execution.kubernetes.trial_pod_settings import TrialPods
from resources.sweep_spec.base import Name as ProjectName
from resources.sweep_spec.base import Strict
from resources.sweep_spec.parsing import problems_of_model
from resources.sweep_spec.requirements import Label, Name, Queue
from resources.sweep_spec.yaml_text import read_yaml
from resources.tenancy.projects import names_of

VARIABLE = "HALVING_CLUSTER"


class Nodes(Strict):
    """Which nodes a pod may run on, in Kubernetes' own words."""

    node_selector: dict[str, str] = Field(default={}, description="Labels that the node must have.")
    tolerations: list[dict[str, Any]] = Field(
        default=[], description="Taints that the pod tolerates, as in a pod's spec."
    )


class ClusterConfig(Strict):
    """How trials run on this cluster."""

    concurrency: int = Field(
        default=4, ge=1, description="Trials of a sweep that run at a time where its spec does not say."
    )
    gpu_resource: str = Field(
        default="nvidia.com/gpu", description="The resource that GPUs are asked for by."
    )
    gpu_types: dict[Label, Nodes] = Field(
        default={}, description="Name of a kind of GPU to the nodes that have it."
    )
    spot: Nodes | None = Field(
        default=None, description="Nodes that may be reclaimed at any time; {} where all may."
    )
    priority_class: Name | None = Field(
        default=None, description="Priority class of trials whose spec names none."
    )
    queue: Queue | None = Field(default=None, description="Kueue's queue of trials whose spec names none.")
    queues: dict[ProjectName, Queue] = Field(
        default={}, description="Project to Kueue's queue of its trials, before the queue of all others."
    )
    trial_pods: TrialPods = Field(
        default=TrialPods(), description="Pods of trials with an image of their own."
    )

    @model_validator(mode="after")
    def _gpus_by_the_spec(self) -> Self:
        if self.gpu_resource in self.trial_pods.gangs.resources:
            raise ValueError(
                f"trial_pods.gangs.resources has {self.gpu_resource}, which is the gpu_resource: a sweep's "
                "spec asks for gpus"
            )
        return self

    def of_project(self, project: str, catalog: Callable[[], Catalog]) -> "ClusterConfig":
        """The settings for trials of a project, with its queue.

        The queue may be set under any name that the project has or had; its present name comes first.

        Args:
            catalog: opens the catalog, which is only read if projects have queues.
        """
        if not self.queues:
            return self
        with catalog().read() as session:
            names = names_of(session, project)
        return self.model_copy(
            update={"queue": next((self.queues[name] for name in names if name in self.queues), self.queue)}
        )


def load_cluster() -> ClusterConfig | None:
    """The settings of the cluster that trials run on; None if they run on the worker's own machine.

    Raises:
        InvalidInput: the file does not exist, or a field is not accepted; the message names it.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return None
    return _load(path)


@cache
def _load(path: str) -> ClusterConfig:
    try:
        settings = read_yaml(Path(path).read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise InvalidInput(
            f"{VARIABLE} = {path!r} is not accepted: {error}; give the path of the cluster's settings in YAML"
        ) from None
    try:
        return ClusterConfig.model_validate(settings or {})
    except ValidationError as error:
        raise InvalidInput(
            f"{VARIABLE} = {path!r} is not accepted:\n" + "\n".join(problems_of_model(error, ClusterConfig))
        ) from None
