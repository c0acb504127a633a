"""The deployment's real base with what a test cluster needs on top: where the code is, small requests, and no
name service.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.backends import CHECKOUT

BASE = CHECKOUT / "deploy" / "kubernetes" / "base"
IMAGE = "localhost/python:3.11"  # without our code in it: the node is this machine, and the code is mounted
_TRAINABLES_AT = "/trainables"
# key to path
_TRAINABLES = {
    "trainables.py": "tests/trainables.py",
    "kubernetes-trainables.py": "tests/kubernetes/trainables.py",
}
_DEPLOYMENTS = ("code-location", "daemon", "webserver", "server")
_IMPORTED = (
    *(
        "dagster._cli",
        "dagster._daemon.cli",
        "dagster_webserver.cli",
        "pipelines.definitions",
        "tests.kubernetes.trainables",
    ),
    *(
        "dagster_aws.s3.compute_log_manager",
        "dagster_k8s.launcher",
        "dagster_k8s.executor",
        "pipelines.postgres_storage",
    ),
    *("halving.trial_process.main", "halving.trial_process.preload"),
)
_ASLEEP = {"server"}  # a test that asks it wakes it: until then the node's memory is for trials


class Image:
    """The image that everything runs in.

    ``HALVING_TEST_IMAGE`` names one with Halving in it, as ``deploy/Containerfile`` builds, and the node may
    be any; the tests' own trainables are mounted. Without it the node has to be this machine: this checkout
    and this Python are mounted from it.
    """

    def __init__(self) -> None:
        self.own = os.environ.get("HALVING_TEST_IMAGE")
        self.name = self.own or IMAGE
        self._folders: list[Path] = []
        if not self.own:
            self._folders = _folders()
        # The image's /root may be entered by root alone, and our Python may be below it.
        self._hidden = any(folder.is_relative_to("/root") for folder in self._folders)

    @property
    def env(self) -> dict[str, str]:
        if self.own:
            return {"PYTHONPATH": _TRAINABLES_AT}
        return {
            "PATH": f"{Path(sys.prefix) / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'sdk'}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @property
    def working_dir(self) -> str | None:
        if self.own:
            return None
        return str(CHECKOUT)

    @property
    def volumes(self) -> list[dict[str, Any]]:
        if self.own:
            items = [{"key": key, "path": path} for key, path in _TRAINABLES.items()]
            return [{"name": "trainables", "configMap": {"name": "test-trainables", "items": items}}]
        volumes: list[dict[str, Any]] = []
        if self._hidden:
            volumes.append({"name": "root", "emptyDir": {}})
        for number, folder in enumerate(self._folders):
            volumes.append({"name": f"host-{number}", "hostPath": {"path": str(folder)}})
        return volumes

    @property
    def mounts(self) -> list[dict[str, Any]]:
        if self.own:
            return [{"name": "trainables", "mountPath": _TRAINABLES_AT}]
        mounts: list[dict[str, Any]] = []
        if self._hidden:
            mounts.append({"name": "root", "mountPath": "/root"})
        for number, folder in enumerate(self._folders):
            mounts.append({"name": f"host-{number}", "mountPath": str(folder), "readOnly": True})
        return mounts

    def prepare(self) -> None:
        """Compile what each pod of the deployment imports, once: pods cannot write bytecode to what is
        mounted.
        """
        if not self.own:
            write_bytecode(*_IMPORTED)


def write_bytecode(*modules: str) -> None:
    """Import modules in a process of its own, which leaves their bytecode, and that of what they import,
    beside them.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run([sys.executable, "-c", f"import {', '.join(modules)}"], check=True, cwd=CHECKOUT, env=env)


def write_overlay(
    folder: Path,
    *,
    namespace: str,
    settings: dict[str, str],
    cluster: dict[str, Any],
    image: Image | None = None,
) -> None:
    """Write a kustomization on the base into ``folder``, an existing one.

    Args:
        folder: where.
        namespace: where it is deployed; it exists.
        settings: entries of the ConfigMap that every pod gets.
        cluster: the cluster's settings; the pods of trials get the mounts of ``image`` beside what it says of
            them.
        image: what the pods run.
    """
    image = image or Image()
    container = {
        "env_vars": [f"{name}={value}" for name, value in image.env.items()],
        "volumes": image.volumes,
        "volume_mounts": image.mounts,
        "run_k8s_config": {
            # More than two cores' worth of trials run at a time here.
            "container_config": {"resources": {"requests": {"cpu": "50m", "memory": "256Mi"}}}
            | ({"working_dir": image.working_dir} if image.working_dir else {}),
            # What a test leaves behind is gone before the next one looks.
            "job_spec_config": {"ttl_seconds_after_finished": 60},
        },
    }
    pods = cluster.get("trial_pods", {})
    cluster = {
        **cluster,
        "trial_pods": {
            "service_account": "halving-trial",
            "env_config_maps": ["halving-settings"],
            "env_secrets": ["halving-store"],
            **pods,
            "env": {**image.env, **pods.get("env", {})},
            "volumes": [*image.volumes, *pods.get("volumes", [])],
            "volume_mounts": [*image.mounts, *pods.get("volume_mounts", [])],
        },
    }
    # A cluster without a name service has the services' addresses in the environment of each pod.
    host = {"env": "CODE_LOCATION_SERVICE_HOST"}
    workspace = {"load_from": [{"grpc_server": {"host": host, "port": 4000, "location_name": "halving"}}]}
    # All as in production but the pace of the monitoring, which a test does not wait for.
    instance = yaml.safe_load((BASE / "dagster.yaml").read_text())
    instance["run_monitoring"]["poll_interval_seconds"] = 5
    for key, path in _TRAINABLES.items():
        shutil.copy(CHECKOUT / path, folder / key)
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
    (folder / "workspace.yaml").write_text(yaml.safe_dump(workspace))
    (folder / "dagster.yaml").write_text(yaml.safe_dump(instance))
    context = {"name": "DAGSTER_CONTAINER_CONTEXT", "value": json.dumps({"k8s": container})}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": namespace,
        "resources": [os.path.relpath(BASE, folder)],
        "images": [_image(image.name)],
        "patches": [
            _patch(name, image, [context] if name == "code-location" else []) for name in _DEPLOYMENTS
        ],
        "configMapGenerator": [
            {"name": "halving-settings", "literals": [f"{name}={value}" for name, value in settings.items()]},
            {"name": "halving-cluster", "behavior": "replace", "files": ["cluster.yaml"]},
            {"name": "halving-instance", "behavior": "replace", "files": ["dagster.yaml", "workspace.yaml"]},
            {"name": "test-trainables", "files": list(_TRAINABLES)},
        ],
        "generatorOptions": {"disableNameSuffixHash": True},
        "replacements": [_same_image_for_runs()],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))


def _folders() -> list[Path]:
    """What has to be mounted for this Python to run this checkout, without what the image has or another
    folder holds.
    """
    folders = {CHECKOUT.resolve(), Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()} - {
        Path("/usr")
    }
    return sorted(
        folder for folder in folders if not any(folder.is_relative_to(other) for other in folders - {folder})
    )


def _image(name: str) -> dict[str, str]:
    if "@" in name:
        repository, digest = name.split("@")
        return {"name": "halving", "newName": repository, "digest": digest}
    repository, _, tag = name.rpartition(":")
    return {"name": "halving", "newName": repository, "newTag": tag}


def _patch(deployment: str, image: Image, env: list[dict[str, Any]]) -> dict[str, str]:
    container = {
        "name": deployment,
        "env": [*({"name": name, "value": value} for name, value in image.env.items()), *env],
        "volumeMounts": image.mounts,
        # Light, so that trials have the machine.
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}},
    }
    if image.working_dir:
        container["workingDir"] = image.working_dir
    patch = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment},
        "spec": {
            **({"replicas": 0} if deployment in _ASLEEP else {}),
            "template": {"spec": {"containers": [container], "volumes": image.volumes}},
        },
    }
    return {"patch": yaml.safe_dump(patch)}


def _same_image_for_runs() -> dict[str, Any]:
    example = yaml.safe_load((BASE.parent / "example" / "kustomization.yaml").read_text())
    return example["replacements"][0]
