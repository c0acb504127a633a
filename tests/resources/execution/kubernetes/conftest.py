from pathlib import Path

import pytest

from halving import Store
from resources.execution.kubernetes import api, watched_pod
from tests.resources.execution.kubernetes.cluster import Cluster


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
