"""The gangs outside of sweeps in deploy/: that Kubernetes' own parts of them have no field it does not know,
and that their numbers agree.

The schemas of JobSet and of Volcano's PodGroup are not at hand here: of these only what is used is looked at.
"""

from typing import Any

import pytest
import yaml

from resources.sweep_spec.requirements import quantity_bytes
from tests.deploy.manifests import KUBERNETES
from tests.resources.execution.kubernetes.pod_json import as_known

GANGS = KUBERNETES / "gangs"


def objects(name: str) -> dict[str, dict[str, Any]]:
    return {item["kind"]: item for item in yaml.safe_load_all((GANGS / name).read_text())}


def job_of(name: str) -> dict[str, Any]:
    if name == "volcano.yaml":
        return objects(name)["Job"]["spec"]
    (replicated,) = objects(name)["JobSet"]["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1
    return replicated["template"]["spec"]


@pytest.mark.parametrize("name", ["jobset.yaml", "volcano.yaml"])
def test_the_pods_of_a_gang_are_known_to_kubernetes_and_may_do_little(name: str) -> None:
    job = job_of(name)
    assert as_known(job, "V1JobSpec") == job
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert (pod["securityContext"]["runAsNonRoot"], pod["automountServiceAccountToken"]) == (True, False)
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize("name", ["jobset.yaml", "volcano.yaml"])
def test_a_gang_has_as_many_pods_as_torchrun_waits_for_and_a_process_for_each_gpu(name: str) -> None:
    job = job_of(name)
    (container,) = job["template"]["spec"]["containers"]
    options = dict(option.lstrip("-").split("=") for option in container["command"] if "=" in option)
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"] == int(options["nnodes"])
    assert container["resources"]["limits"]["nvidia.com/gpu"] == options["nproc-per-node"]
    host, _, subdomain = options["rdzv-endpoint"].partition(":")[0].partition(".")
    first = {"jobset.yaml": "train-nodes-0-0", "volcano.yaml": "train-0"}[name]
    assert (host, subdomain) == (first, "train")


def test_volcano_places_all_pods_or_none() -> None:
    manifests = objects("volcano.yaml")
    job = job_of("volcano.yaml")
    group = manifests["PodGroup"]
    service = manifests["Service"]
    template = job["template"]
    assert as_known(service, "V1Service") == service
    assert template["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": group["metadata"]["name"]}
    assert (template["spec"]["schedulerName"], template["spec"]["subdomain"]) == (
        "volcano",
        service["metadata"]["name"],
    )
    assert service["spec"]["selector"] == {"job-name": manifests["Job"]["metadata"]["name"]}
    assert group["spec"]["minMember"] == job["completions"]
    requests = template["spec"]["containers"][0]["resources"]["requests"]
    minimum = group["spec"]["minResources"]
    for resource in ("cpu", "nvidia.com/gpu"):
        assert int(minimum[resource]) == job["completions"] * int(requests[resource])
    assert quantity_bytes(minimum["memory"]) == job["completions"] * quantity_bytes(requests["memory"])
