"""Sweeps whose trials run in pods of an image with only the SDK, and the namespace that they run in."""

import json
import os
import re
import secrets
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import NetworkingV1Api
from sqlalchemy import select

from resources.backend import Backend
from resources.catalog import AttemptRow, TrialRow
from resources.execution.kubernetes import api
from resources.sweep_spec import SweepSpec
from tests.backends import CHECKOUT
from tests.kubernetes.overlay import IMAGE
from tests.kubernetes.services import SESSION, ObjectStore, address_for_pods
from tests.resources.execution.worked_sweeps import WorkedSweep, state_of, taking_its_place
from tests.waiting import wait_for

Spec = Callable[..., SweepSpec]
DATABASE_PASSWORD = f"planted-{secrets.token_hex(12)}"

# What is in the image beside the SDK; a ConfigMap brings it there.
LONG_EPOCH = """

def train_through_a_long_epoch(run):
    seen = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        while (epoch, run.attempt) == (2, 1) and not run.stopping:
            time.sleep(0.05)
        time.sleep(5.0 if run.stopping else 0.0)
        seen.append([epoch, run.attempt])
        run.report(score=0.5)
        run.save(seen=seen)
"""
TRAINABLE = """
import json, os, time
from pathlib import Path


def train(run):
    seen = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        seen.append(epoch)
        run.log({"train/loss": 1 / epoch}, step=epoch)
        run.report(score=run.params["x"] * (1 - 0.5**epoch))
        run.save(seen=seen)


def train_arrays(run):
    import numpy as np
    weights = run.restore(weights=np.zeros(3))["weights"]
    for epoch in run.epochs():
        weights = weights + run.params["x"] / epoch
        run.report(score=float(weights.sum()))
        run.save(weights=weights)


def train_slowly(run):
    seen = list(run.restore(seen=[])["seen"])
    for epoch in run.epochs():
        # The first attempt stays in its third epoch until somebody ends it.
        steps = 2400 if run.attempt == 1 and epoch == 3 else 20
        for step in range(steps):
            time.sleep(0.05)
            run.log({"train/loss": 1 / epoch}, step=20 * epoch + step)
            if run.stopping and step < steps - 1:
                run.save(seen=seen)
        seen.append(epoch)
        run.report(score=0.5)
        run.save(seen=seen)


def look_around(run):
    try:
        Path("/somewhere").write_text("")
        writable = True
    except OSError:
        writable = False
    surroundings = {
        "env": dict(os.environ),
        "uid": os.getuid(),
        "writable": writable,
        "token": Path("/var/run/secrets").exists(),
    }
    Path("/tmp/surroundings.json").write_text(json.dumps(surroundings))
    run.log_artifact("/tmp/surroundings.json")
    train(run)


def take_all_memory(run):
    run.restore(seen=[])
    for epoch in run.epochs():
        if epoch == 2 and run.attempt == 1:
            kept = bytearray(os.urandom(1)) * (1 << 30)
        run.report(score=0.5)
        run.save(seen=[epoch])


def need_a_package(run):
    import nowhere
"""


class Site:
    """A namespace with the store's credentials, an S3 API that its pods reach, and the SDK for their
    image.
    """

    def __init__(self) -> None:
        self.core = api.core_api()
        self.namespace = f"halving-image-{secrets.token_hex(3)}"
        self._folder = Path(tempfile.mkdtemp(prefix="halving-image-"))
        self._folder.chmod(0o755)
        self.kubeconfig = self._kubeconfig()
        address = address_for_pods(self.core)
        self.s3 = ObjectStore(address)
        self.store_key = f"planted-{secrets.token_hex(12)}"
        self.keys = {"AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": self.store_key}
        self.settings = {"AWS_ENDPOINT_URL": self.s3.url, "AWS_DEFAULT_REGION": "us-east-1"}
        self.image = os.environ.get("HALVING_TEST_SDK_IMAGE") or IMAGE
        self.core.create_namespace({"metadata": {"name": self.namespace, "labels": SESSION}})
        self.core.create_namespaced_secret(
            self.namespace, {"metadata": {"name": "halving-store"}, "stringData": self.keys}
        )
        code = {"in_image.py": TRAINABLE + LONG_EPOCH}
        self.core.create_namespaced_config_map(
            self.namespace, {"metadata": {"name": "trainable"}, "data": code}
        )
        wait_for(
            lambda: self.core.list_namespaced_service_account(self.namespace).items,
            60,
            "the namespace's service account",
        )

    def cluster(self, **changes: Any) -> Path:
        """The cluster's settings, in a file; with changes to what trials' pods get."""
        pods: dict[str, Any] = {
            "env": {**self.settings, "PYTHONPATH": "/trainable"},
            "env_secrets": ["halving-store"],
            "volumes": [{"name": "trainable", "configMap": {"name": "trainable"}}],
            "volume_mounts": [{"name": "trainable", "mountPath": "/trainable"}],
        }
        if self.image == IMAGE and "volumes" not in changes:  # without our code: the node is this machine
            pods["env"]["PYTHONPATH"] = "/trainable:/sdk"
            pods["volumes"].append({"name": "sdk", "hostPath": {"path": str(self.sdk())}})
            pods["volume_mounts"].append({"name": "sdk", "mountPath": "/sdk", "readOnly": True})
        path = self._folder / f"cluster-{secrets.token_hex(3)}.yaml"
        path.write_text(yaml.safe_dump({"trial_pods": pods | changes}))
        return path

    def pods(self) -> list[Any]:
        pods: list[Any] = self.core.list_namespaced_pod(self.namespace).items
        return pods

    def policies(self) -> list[Any]:
        """Network policies of gangs that train."""
        policies: list[Any] = (
            NetworkingV1Api(self.core.api_client).list_namespaced_network_policy(self.namespace).items
        )
        return policies

    def close(self) -> None:
        self.core.delete_namespace(self.namespace)
        self.s3.stop()
        shutil.rmtree(self._folder)

    def sdk(self) -> Path:
        """A folder with the SDK, what it needs, and nothing of the application: as pip installs it, and with
        the bytecode that is there.
        """
        folder = self._folder / "sdk"
        if not folder.exists():
            shutil.copytree(CHECKOUT / "sdk" / "halving", folder / "halving")
            needed = [name for name in metadata.requires("halving") or () if "extra ==" not in name]
            for name in ["halving", *(re.split("[^a-z]", name)[0] for name in needed)]:
                distribution = metadata.distribution(name)
                for part in {
                    file.parts[0] for file in distribution.files or () if "editable" not in file.parts[0]
                } - {"..", "__pycache__"}:
                    shutil.copytree(str(distribution.locate_file(part)), folder / part)
        return folder

    def _kubeconfig(self) -> Path:
        """As KUBECONFIG, with the namespace: where a worker outside of the cluster makes its pods."""
        output = subprocess.run(
            ["kubectl", "config", "view", "--minify", "--flatten", "-o", "json"],
            capture_output=True,
            check=True,
        ).stdout
        config = json.loads(output)
        config["contexts"][0]["context"]["namespace"] = self.namespace
        path = self._folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return path


class RanInPods(WorkedSweep):
    """A sweep on the site's store, worked off by one worker in this process."""

    def __init__(self, site: Site, backend: Backend, spec: SweepSpec) -> None:
        super().__init__(backend, spec)
        self.site = site

    def row(self, number: int = 0) -> TrialRow:
        return self.rows()[number]

    def waiting(self) -> list[str | None]:
        return [row.waiting for row in self.rows()]

    def outcomes(self) -> list[str]:
        return [str(row.outcome) for row in self.attempts()]

    def errors(self) -> list[str | None]:
        return [row.error for row in self.attempts()]

    def attempts(self) -> list[AttemptRow]:
        with self.backend.catalog.read() as session:
            return list(
                session.scalars(
                    select(AttemptRow).where(AttemptRow.sweep == self.sweep).order_by(AttemptRow.attempt)
                )
            )

    def pods(self) -> list[Any]:
        return [pod for pod in self.site.pods() if pod.metadata.labels.get("halving/sweep") == self.sweep]

    def meanwhile(self, act: Callable[[], object]) -> threading.Thread:
        thread = threading.Thread(target=act, daemon=True)
        thread.start()
        return thread

    def wait_for(self, condition: Callable[[], Any], seconds: float = 60) -> Any:
        return wait_for(condition, seconds, "what the test waits for")


def ask_back_once_it_trains(ran: RanInPods, small_spec: Spec) -> None:
    """Take its only place from a sweep with a long second epoch, work it off, and see that nothing was
    lost.
    """
    take_its_place = taking_its_place(ran, small_spec)

    def act() -> None:
        ran.wait_for(ran.records(0).checkpoints, 150)
        take_its_place()

    asking = ran.meanwhile(act)
    ran.work()
    asking.join(10)
    row = ran.row()
    assert (row.status, row.attempt, row.failures, row.preemptions) == ("completed", 2, 0, 0), ran.errors()
    assert ran.outcomes() == ["requeue", "complete"]
    assert state_of(ran)["seen"] == [[1, 1], [2, 1], [3, 2]]
