"""Tests on a real cluster, whichever KUBECONFIG points at; without one they are skipped, with the reason."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.backends import *  # noqa: F403
from tests.deploy import kubectl
from tests.postgres import INSTALLED

_HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker and xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(_HERE):
            item.add_marker("service")
            # They wait for pods most of the time: one of xdist's workers takes those of the installation, another the others.
            if not item.get_closest_marker("xdist_group"):
                item.add_marker(pytest.mark.xdist_group(item.path.parent.name))
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> None:
    if reason := unusable():
        pytest.skip(reason)


def unusable() -> str | None:
    """Why these tests cannot run here; None where they can."""
    if not os.environ.get("KUBECONFIG"):
        return "needs a Kubernetes cluster: set KUBECONFIG (docs/deploy.md)"
    if reason := kubectl.unusable():
        return reason
    if not INSTALLED:
        return "needs Postgres' initdb: apt-get install postgresql"
    asked = subprocess.run(["kubectl", "--request-timeout=5s", "get", "nodes", "-o", "name"], capture_output=True, text=True, check=False)
    return None if asked.returncode == 0 else f"KUBECONFIG's cluster does not answer: {asked.stderr.strip()[-200:]}"
