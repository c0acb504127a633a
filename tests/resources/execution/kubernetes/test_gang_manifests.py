"""What the pods of a gang have in common, as Kueue documents it for groups of plain pods."""

import re

from resources.execution.kubernetes.gang_manifests import gang_annotations, gang_labels, gang_policies
from resources.execution.kubernetes.watched_pod import pod_name


def test_a_queue_admits_the_pods_of_a_gang_as_one_group_of_so_many() -> None:
    assert gang_labels("g", "trials") == {"halving/gang": "g", "kueue.x-k8s.io/pod-group-name": "g"}
    assert gang_annotations(4, "trials") == {
        "kueue.x-k8s.io/pod-group-total-count": "4",
        "kueue.x-k8s.io/retriable-in-group": "false",
    }


def test_without_a_queue_there_is_no_group() -> None:
    assert gang_labels("g", None) == {"halving/gang": "g"}
    assert gang_annotations(4, None) == {}


def test_the_names_of_a_gang_and_its_pods_are_labels_and_host_names() -> None:
    key = "a-sweep-with-a-name-that-goes-on-and-on-and-on-7f3a.0007"
    for name in (pod_name(key, "a99"), pod_name(key, "a99-n99")):
        assert re.fullmatch("[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name), name


def test_pods_in_their_nodes_networks_reach_the_store_though_no_policy_knows_them() -> None:
    (store,) = gang_policies("g", 4711, None, {"job-name": "j"}, host_network=True)
    assert store["spec"]["podSelector"]["matchLabels"] == {"job-name": "j"}
    assert store["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 4711}]}]
    assert gang_policies("g", 4711, None, None, host_network=True) == []
