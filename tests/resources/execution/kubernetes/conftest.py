"""Clusters without Kubernetes: one that only remembers, and one whose pods are processes of this machine."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from halving import Store
from resources.backend import Backend
from resources.execution.kubernetes import api, gang_store, watched_pod
from tests.resources.execution.kubernetes.cluster import Cluster
from tests.resources.execution.kubernetes.gang_sweeps import TRAINABLE, GangSweep
from tests.resources.execution.kubernetes.process_cluster import ProcessCluster
from tests.resources.execution.worked_sweeps import Spec


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr(api, "core_api", lambda: cluster)
    monkeypatch.setattr(api, "namespace", lambda: "n")
    monkeypatch.setattr(watched_pod, "_STARTING_SECONDS", 0.0)
    return cluster


@pytest.fixture
def run(
    tmp_path: Path, backend: Backend, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., GangSweep]]:
    """Opens a sweep of gangs of two pods each, on a cluster whose pods are processes of this machine."""
    (tmp_path / "in_image.py").write_text(TRAINABLE)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"trial_pods": {"env": {}}}))
    cluster = ProcessCluster(str(tmp_path))
    monkeypatch.setenv("HALVING_CLUSTER", str(tmp_path / "cluster.yaml"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(api, "core_api", lambda: cluster)
    monkeypatch.setattr(api, "namespace", lambda: "n")
    monkeypatch.setattr(api, "own_reference", lambda: None)
    monkeypatch.setattr(api, "create_policy", lambda _: None)
    monkeypatch.setattr(api, "delete_policy", lambda _: None)
    monkeypatch.setattr(gang_store, "own_address", lambda: "127.0.0.1")
    monkeypatch.setattr(watched_pod, "_STARTING_SECONDS", 0.2)
    monkeypatch.setattr(watched_pod, "_RUNNING_SECONDS", 0.5)

    def make(*, gpus: int = 4, **changes: Any) -> GangSweep:
        cluster.gpus = gpus
        resources = {"cpus": 1, "gpus": 2, "nodes": 2, "grace_seconds": 30, **changes.pop("resources", {})}
        fields = {
            "image": "i",
            "trainable": "in_image:train",
            "max_trials": 1,
            "strategy": {"random": {"budget": 3}},
            "max_retries": 0,
        }
        return GangSweep(cluster, backend, small_spec(resources=resources, **{**fields, **changes}))

    yield make
    cluster.close()
