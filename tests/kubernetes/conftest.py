"""Tests on a real cluster, whichever KUBECONFIG points at; without one they are skipped, with the reason."""

import fcntl
import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from resources.backend import Backend
from resources.execution.kubernetes import api
from tests.backends import *  # noqa: F403
from tests.deploy import kubectl
from tests.kubernetes.image_sweeps import DATABASE_PASSWORD, RanInPods, Site, Spec
from tests.kubernetes.services import SESSION, address_for_pods, keep_bridge
from tests.postgres import INSTALLED

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker("service")
            # They wait for pods most of the time: one of xdist's workers takes those of the installation,
            # another the others.
            if not item.get_closest_marker("xdist_group"):
                item.add_marker(pytest.mark.xdist_group(item.path.parent.name))
            item.add_marker(pytest.mark.timeout(900, func_only=True))  # not while it waits for the GPUs


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> None:
    if reason := unusable():
        pytest.skip(reason)
    keep_bridge(address_for_pods(api.core_api()))


@pytest.fixture
def gpus() -> Iterator[None]:
    """The cluster's GPUs for one test: those in which others of xdist's workers want them, too, wait for its
    end.
    """
    with (Path(tempfile.gettempdir()) / f"halving-gpus-{'-'.join(SESSION.values())}").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


@pytest.fixture
def run(
    site: Site, tmp_path: Path, small_spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., RanInPods]]:
    """Make a sweep with an image; ``pods=`` changes the settings of its trials' pods."""
    for name, value in (site.settings | site.keys).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KUBECONFIG", str(site.kubeconfig))
    api.namespace.cache_clear()
    monkeypatch.setenv("PGPASSWORD", DATABASE_PASSWORD)
    site.s3.make_bucket()
    backend = Backend(
        root=f"s3://{site.s3.bucket}/{secrets.token_hex(4)}",
        catalog_url=f"sqlite:///{tmp_path}/{DATABASE_PASSWORD}.db",
    )

    def make(pods: dict[str, Any] | None = None, **changes: Any) -> RanInPods:
        monkeypatch.setenv("HALVING_CLUSTER", str(site.cluster(**(pods or {}))))
        resources = {"cpus": 0.25, "grace_seconds": 10, **changes.pop("resources", {})}
        fields = {
            "image": site.image,
            "trainable": "in_image:train",
            "max_trials": 1,
            "strategy": {"random": {"budget": 4}},
            **changes,
        }
        return RanInPods(site, backend, small_spec(resources=resources, **fields))

    yield make
    api.namespace.cache_clear()
    backend.catalog.close()


def unusable() -> str | None:
    """Why these tests cannot run here; None where they can."""
    if not os.environ.get("KUBECONFIG"):
        return "needs a Kubernetes cluster: set KUBECONFIG (docs/deploy.md)"
    if reason := kubectl.unusable():
        return reason
    if not INSTALLED:
        return "needs Postgres' initdb: apt-get install postgresql"
    answer = subprocess.run(
        ["kubectl", "--request-timeout=5s", "get", "nodes", "-o", "name"],
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode:
        return f"KUBECONFIG's cluster does not answer: {answer.stderr.strip()[-200:]}"
    return None
