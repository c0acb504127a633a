"""Tests on a real cluster, whichever KUBECONFIG points at; without one they are skipped, with the reason."""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from resources.execution.kubernetes import api
from tests.backends import *  # noqa: F403
from tests.deploy import kubectl
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
    return (
        None
        if answer.returncode == 0
        else f"KUBECONFIG's cluster does not answer: {answer.stderr.strip()[-200:]}"
    )
