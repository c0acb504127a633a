"""A trial's pod follows from its spec, in the labels of the cluster that it runs on."""

import json
from typing import Any

import pytest
from dagster_k8s.job import DagsterK8sJobConfig, UserDefinedDagsterK8sConfig, construct_dagster_k8s_job

from halving.errors import InvalidInput
from resources.execution.kubernetes.cluster_config import ClusterConfig, load_cluster
from resources.execution.kubernetes.pod_manifests import (
    check_resources,
    label_value,
    trial_manifest,
    worker_config,
)
from resources.execution.kubernetes.trial_pod_settings import TrialPods
from resources.tenancy.projects import rename_project, set_project
from tests.resources.execution.kubernetes.pod_json import as_known

CLUSTER = ClusterConfig.model_validate(
    {
        "gpu_types": {"a100": {"node_selector": {"nvidia.com/gpu.product": "NVIDIA-A100"}}},
        "spot": {
            "node_selector": {"cloud.google.com/gke-spot": "true"},
            "tolerations": [
                {
                    "key": "cloud.google.com/gke-spot",
                    "operator": "Equal",
                    "value": "true",
                    "effect": "NoSchedule",
                }
            ],
        },
        "priority_class": "research",
        "trial_pods": {
            "service_account": "trials",
            "env_secrets": ["store"],
            "env": {"AWS_REGION": "eu-west-1"},
        },
    }
)
WANTED = {"gpus": 1, "gpu_type": "a100", "cpus": 8, "memory": "32Gi", "spot": True, "nodes": 1}


def test_a_workers_pod_has_what_its_trials_need(small_spec):
    config = worker_config(small_spec(resources=WANTED), CLUSTER, {"halving/sweep": "s"})
    assert config["container_config"]["resources"] == {
        "requests": {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "32Gi", "nvidia.com/gpu": "1"},
    }
    pod = config["pod_spec_config"]
    assert pod["nodeSelector"] == {
        "nvidia.com/gpu.product": "NVIDIA-A100",
        "cloud.google.com/gke-spot": "true",
    }
    assert [toleration["key"] for toleration in pod["tolerations"]][:2] == [
        "nvidia.com/gpu",
        "cloud.google.com/gke-spot",
    ]
    assert pod["priorityClassName"] == "research"
    assert pod["terminationGracePeriodSeconds"] > 30


def test_a_worker_of_one_attempt_has_what_its_rung_needs_and_one_of_all_the_most(small_spec):
    spec = small_spec(resources={"gpus": {1: 1, 3: 8, 9: 2}})
    limits = [
        worker_config(spec, CLUSTER, {}, budget)["container_config"]["resources"]["limits"]
        for budget in (1, 3, 9, None)
    ]
    assert [limit["nvidia.com/gpu"] for limit in limits] == ["1", "8", "2", "8"]


def test_a_spec_without_needs_asks_for_a_core_and_nothing_else(small_spec):
    config = worker_config(small_spec(), ClusterConfig(), {})
    assert config["container_config"]["resources"] == {"requests": {"cpu": "1"}}
    assert not {"nodeSelector", "priorityClassName"} & set(config["pod_spec_config"])


@pytest.mark.parametrize("image", [None, "train:1"])
def test_a_worker_on_a_node_that_is_not_heard_of_is_given_up_soon(small_spec, image):
    config = worker_config(small_spec(image=image), CLUSTER, {})
    config_of_pod = UserDefinedDagsterK8sConfig.from_dict(json.loads(json.dumps(config)))
    pod = construct_dagster_k8s_job(
        DagsterK8sJobConfig(job_image="i"), ["x"], "job", config_of_pod
    ).spec.template.spec
    lost = {toleration.key: toleration.toleration_seconds for toleration in pod.tolerations}
    assert lost == {"node.kubernetes.io/not-ready": 30, "node.kubernetes.io/unreachable": 30}


def test_dagster_takes_the_workers_pod_as_it_is(small_spec):
    config = worker_config(small_spec(resources={**WANTED, "queue": "ml"}), CLUSTER, {"halving/sweep": "s"})
    UserDefinedDagsterK8sConfig.from_dict(json.loads(json.dumps(config)))
    assert config["pod_template_spec_metadata"]["labels"] == {
        "halving/sweep": "s",
        "kueue.x-k8s.io/queue-name": "ml",
    }
    assert config["job_metadata"]["labels"] == config["pod_template_spec_metadata"]["labels"]


def test_what_the_spec_names_comes_before_the_clusters_own(small_spec):
    config = worker_config(small_spec(resources={**WANTED, "priority_class": "urgent"}), CLUSTER, {})
    assert config["pod_spec_config"]["priorityClassName"] == "urgent"


def manifest(spec: Any, **changes: Any) -> dict[str, Any]:
    options: dict[str, Any] = {
        "name": "p",
        "labels": {},
        "command": ["python"],
        "env": {"HALVING_ROOT": "s3://b/p"},
    }
    return trial_manifest(spec.image, spec.resources.at(1), CLUSTER, **{**options, **changes})


def test_with_an_image_the_trials_pod_has_the_gpu_and_its_worker_next_to_nothing(small_spec):
    spec = small_spec(resources=WANTED, image="registry.example/train@sha256:aa")
    worker = worker_config(spec, CLUSTER, {})
    assert set(worker["container_config"]["resources"]) == {"requests"}
    assert "nvidia.com/gpu" not in worker["container_config"]["resources"]["requests"]
    (container,) = manifest(spec)["spec"]["containers"]
    assert container["image"] == "registry.example/train@sha256:aa"
    assert container["resources"]["limits"] == {"memory": "32Gi", "nvidia.com/gpu": "1"}


def test_a_trials_own_pod_has_no_rights_and_no_writable_image(small_spec):
    made = manifest(small_spec(image="train:1"), labels={"halving/sweep": "s"})
    assert made["metadata"]["labels"] == {"app.kubernetes.io/part-of": "halving", "halving/sweep": "s"}
    assert made["metadata"]["annotations"] == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    pod = made["spec"]
    (container,) = pod["containers"]
    # What the Pod Security level `restricted` asks for.
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (container["securityContext"]["runAsUser"], container["securityContext"]["runAsGroup"]) == (
        1000,
        1000,
    )
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert not any("CATALOG" in variable["name"] for variable in container["env"])
    assert container["envFrom"] == [{"secretRef": {"name": "store"}}]


def test_a_trials_own_pod_leaves_the_journals_on_a_volume_to_their_user_alone(small_spec):
    """``fsGroup`` makes volumes writable for the group at every mount, unless their root is the group's."""
    assert (
        manifest(small_spec(image="train:1"))["spec"]["securityContext"]["fsGroupChangePolicy"]
        == "OnRootMismatch"
    )


FAST = {
    "annotations": {"sidecar.istio.io/inject": "false"},
    "gangs": {
        "host_network": True,
        "annotations": {"k8s.v1.cni.cncf.io/networks": "rdma-net"},
        "resources": {"rdma/hca_shared_devices_a": 1, "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5Gi"},
        "env": {"NCCL_SOCKET_IFNAME": "net1"},
    },
}


def test_only_pods_of_a_gang_have_the_fast_network_between_nodes(small_spec):
    cluster = CLUSTER.model_copy(update={"trial_pods": TrialPods.model_validate(FAST)})
    owned = {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}, "env": {"HALVING_GANG": "{}"}}
    needs = [
        small_spec(image="train:1", resources={**WANTED, "nodes": nodes}).resources.at(1) for nodes in (2, 1)
    ]
    gang, single = [
        trial_manifest("train:1", need, cluster, name="p", labels={}, command=["python"], **owned)
        for need in needs
    ]
    for made in (gang, single):
        assert as_known(made, "V1Pod") == made, "Kubernetes' API knows every field"
    (container,) = gang["spec"]["containers"]
    (alone,) = single["spec"]["containers"]
    devices = {"rdma/hca_shared_devices_a": "1", "vpc.amazonaws.com/efa": "4", "hugepages-2Mi": "5Gi"}
    own = {"memory": "32Gi", "nvidia.com/gpu": "1"}
    assert container["resources"] == {
        "requests": {"cpu": "8", **own, **devices},
        "limits": {**own, **devices},
    }
    assert alone["resources"]["limits"] == own
    assert (gang["spec"]["hostNetwork"], gang["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert not {"hostNetwork", "dnsPolicy"} & set(single["spec"])
    assert gang["metadata"]["annotations"] == {
        "sidecar.istio.io/inject": "false",
        "k8s.v1.cni.cncf.io/networks": "rdma-net",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "kueue.x-k8s.io/pod-group-total-count": "2",
    }
    assert single["metadata"]["annotations"].keys() == gang["metadata"]["annotations"].keys() - {
        "k8s.v1.cni.cncf.io/networks"
    }
    variables = {entry["name"]: entry["value"] for entry in container["env"]}
    assert (variables["NCCL_SOCKET_IFNAME"], variables["HALVING_GANG"]) == ("net1", "{}")
    assert "NCCL_SOCKET_IFNAME" not in {entry["name"] for entry in alone["env"]}


def test_shared_memory_is_bounded_by_the_pods_memory_alone(small_spec):
    pod = manifest(small_spec(image="train:1"))["spec"]
    (volume,) = [volume for volume in pod["volumes"] if volume["name"] == "shared-memory"]
    assert volume["emptyDir"] == {"medium": "Memory"}
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in pod["containers"][0]["volumeMounts"]


def test_a_gpu_type_that_the_cluster_does_not_know_is_refused_with_those_it_does(small_spec):
    with pytest.raises(InvalidInput, match=r"resources.gpu_type = 'a10' .*did you mean 'a100'.*\['a100'\]"):
        check_resources(small_spec(resources={"gpus": 1, "gpu_type": "a10"}).resources, CLUSTER)


def test_spot_is_refused_where_the_cluster_does_not_say_what_it_means(small_spec):
    spot = small_spec(resources={"spot": True})
    with pytest.raises(
        InvalidInput, match=r"resources.spot = True is not accepted: the cluster's settings have no spot"
    ):
        check_resources(spot.resources, ClusterConfig())
    check_resources(spot.resources, ClusterConfig.model_validate({"spot": {}}))


@pytest.mark.parametrize("name", ["digits-7f3a.0007", "x" * 200, "a@b+c", "ends-with-"])
def test_every_name_makes_a_label_that_kubernetes_takes(name):
    value = label_value(name)
    assert len(value) <= 63
    assert value[0].isalnum()
    assert value[-1].isalnum()
    assert all(letter.isalnum() or letter in "-_." for letter in value)


def test_different_names_make_different_labels():
    assert label_value("x" * 64) != label_value("x" * 65)


def test_without_the_variable_there_is_no_cluster(monkeypatch):
    monkeypatch.delenv("HALVING_CLUSTER", raising=False)
    assert load_cluster() is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "concurency: 3",
            r"concurency = 3 is not accepted: there is no such field, did you mean 'concurrency'",
        ),
        (
            "gpu_types: {a100: {selector: {}}}",
            r"gpu_types.a100.selector = \{\} is not accepted: there is no such field",
        ),
        ("concurrency: 0", r"concurrency = 0 is not accepted"),
        (
            "trial_pods: {env_secrets: [My_Store]}",
            r"trial_pods.env_secrets.0 = 'My_Store' is not accepted: give the name of an object",
        ),
        ("a: [", r"HALVING_CLUSTER = "),
        (
            "trial_pods: {gangs: {resources: {cpu: 4}}}",
            r"trial_pods.gangs.resources is not accepted: cpu is what a sweep's spec asks for",
        ),
        (
            "trial_pods: {gangs: {resources: {rdma: 1}}}",
            r"'rdma' is no resource of a device: give for example rdma/hca_shared_devices_a",
        ),
        (
            "trial_pods: {gangs: {resources: {rdma/a: 0}}}",
            r"rdma/a cannot be 0: give a whole number from 1 on",
        ),
        (
            "trial_pods: {gangs: {resources: {rdma/a: true}}}",
            r"rdma/a cannot be True: give a whole number from 1 on",
        ),
        (
            "trial_pods: {gangs: {resources: {hugepages-2Mi: none}}}",
            r"hugepages-2Mi cannot be 'none': give bytes, for example 5Gi",
        ),
        (
            "trial_pods: {gangs: {resources: {nvidia.com/gpu: 8}}}",
            r"nvidia.com/gpu, which is the gpu_resource: a sweep's spec asks for gpus",
        ),
        (
            "trial_pods: {gangs: {env: {RANK: '0'}}}",
            r"trial_pods.gangs.env is not accepted: RANK is set by the platform: leave it out",
        ),
        ("trial_pods: {gangs: {env: {1A: x}}}", r"'1A' is no variable's name"),
        (
            "trial_pods: {env: {TORCHELASTIC_RUN_ID: x}}",
            r"trial_pods.env is not accepted: TORCHELASTIC_RUN_ID is set by the platform",
        ),
        (
            "trial_pods: {env: {HALVING_CATALOG: x}}",
            r"HALVING_CATALOG is not for pods of trials: what their image does is not trusted",
        ),
        (
            "trial_pods: {volume_mounts: [{name: a, mountPath: /tmp/.}]}",
            r"/tmp/\. is a volume of each pod already",
        ),
        (
            "trial_pods: {annotations: {container.apparmor.security.beta.kubernetes.io/trial: unconfined}}",
            r"apparmor.security.beta.kubernetes.io/trial is set by the platform: leave it out",
        ),
        (
            "trial_pods: {gangs: {annotations: {kueue.x-k8s.io/pod-group-total-count: '9'}}}",
            r"total-count is set by the platform",
        ),
        (
            "trial_pods: {annotations: {halving/gang: x}}",
            r"trial_pods.annotations is not accepted: halving/gang is set by the platform: leave it out",
        ),
        ("trial_pods: {annotations: {'a b': x}}", r"'a b' is no annotation's name"),
        ("trial_pods: {annotations: {a: 1}}", r"trial_pods.annotations.a = 1 is not accepted"),
        (
            "trial_pods: {gangs: {host_network: [1]}}",
            r"trial_pods.gangs.host_network = \[1\] is not accepted",
        ),
        (
            "trial_pods: {volumes: [{name: scratch, emptyDir: {}}]}",
            r"the volume 'scratch' is each pod's own, at /tmp: give yours another name",
        ),
        (
            "trial_pods: {volume_mounts: [{name: a, mountPath: /dev/shm/}]}",
            r"/dev/shm/ is a volume of each pod already: mount yours elsewhere",
        ),
    ],
)
def test_wrong_settings_of_the_cluster_are_refused_by_field(tmp_path, monkeypatch, content, message):
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    monkeypatch.setenv("HALVING_CLUSTER", str(path))
    with pytest.raises(InvalidInput, match=message):
        load_cluster()


def test_settings_that_are_not_there_are_refused(monkeypatch):
    monkeypatch.setenv("HALVING_CLUSTER", "/no/such/cluster.yaml")
    with pytest.raises(InvalidInput, match=r"/no/such/cluster.yaml.*give the path"):
        load_cluster()


def test_a_projects_trials_wait_in_its_own_queue_unless_the_spec_names_one(small_spec, catalog):
    cluster = CLUSTER.model_copy(update={"queue": "others", "queues": {"vision": "team-a"}})

    def queue(cluster=cluster, **options):
        spec = small_spec(**options)
        labels = worker_config(spec, cluster.of_project(spec.project, lambda: catalog), {})[
            "pod_template_spec_metadata"
        ]["labels"]
        return labels["kueue.x-k8s.io/queue-name"]

    assert (queue(project="vision"), queue(project="nlp")) == ("team-a", "others")
    assert queue(project="vision", resources={"queue": "mine"}) == "mine"
    set_project(catalog, "vision", weight=2)
    rename_project(catalog, "vision", "sight")
    assert (queue(project="vision"), queue(project="sight"), queue(project="nlp")) == (
        "team-a",
        "team-a",
        "others",
    )
    both = cluster.model_copy(update={"queues": {"vision": "team-a", "sight": "team-b"}})
    assert (queue(both, project="vision"), queue(both, project="sight")) == ("team-b", "team-b")
