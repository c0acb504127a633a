"""A cluster whose pods are processes of this machine, which run and end faster than real ones."""

import os
import runpy
import signal
import sys
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from kubernetes.client import V1Pod

from tests import gangs
from tests.resources.execution.kubernetes.cluster import Cluster


class ProcessCluster(Cluster):
    """A :class:`Cluster` with ``gpus``, of which each pod takes what it asks for, and a home for each.

    ``manifests`` has that of every pod, by its name.

    ``stuck`` are the nodes of a gang (``n1``) whose pods get a place and do not start there.
    """

    def __init__(self, folder: str, *, gpus: int = 4) -> None:
        super().__init__()
        self.gpus = gpus
        self.stuck = set[str]()
        self.manifests: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, BaseProcess] = {}
        self.deleted: set[str] = set()
        self._folder = folder
        # the server that pods are forked from has then imported what it holds, and no pod waits for that
        gangs.start(os.getpid).join()

    def create_namespaced_pod(self, namespace: str, manifest: dict[str, Any], **options: Any) -> None:
        super().create_namespaced_pod(namespace, manifest, **options)
        self.manifests[manifest["metadata"]["name"]] = manifest
        self._schedule()

    def delete_namespaced_pod(
        self, name: str, _namespace: str, *, grace_period_seconds: int | None = None, **_: Any
    ) -> None:
        self._fail("delete")
        if name not in self.pods:
            super().delete_namespaced_pod(name, _namespace)
        process = self.processes.get(name)
        if process is None or not process.is_alive():
            del self.pods[name]
            return
        self.deleted.add(name)
        if grace_period_seconds in (0, 1):
            process.kill()
        else:
            process.terminate()

    def read_namespaced_pod(self, name: str, namespace: str, **options: Any) -> V1Pod:
        self._schedule()
        for other in [other for other in self.deleted if not self.processes[other].is_alive()]:
            self.pods.pop(other, None)
        self.status = self._status_of(name)
        pod = super().read_namespaced_pod(name, namespace, **options)
        pod.spec.node_name = "node" if name in self.processes or self._is_stuck(name) else None
        pod.metadata.deletion_timestamp = "2026-01-01T00:00:00Z" if name in self.deleted else None
        return pod

    def kill_node(self, name: str) -> None:
        """Lose a pod at once, with all its processes; the cluster goes on saying that it runs."""
        _kill_all_of(self.processes[name])
        self.lost = name

    lost: str | None = None

    def close(self) -> None:
        for process in self.processes.values():
            _kill_all_of(process)

    def _schedule(self) -> None:
        """Start the pods that there are GPUs for."""
        used = sum(
            self._gpus_of(name)
            for name in self.pods
            if name in self.processes and self.processes[name].is_alive()
        )
        for name in self.pods:
            if name in self.processes or self._is_stuck(name) or used + self._gpus_of(name) > self.gpus:
                continue
            used += self._gpus_of(name)
            container = self.manifests[name]["spec"]["containers"][0]
            env = {
                **{entry["name"]: entry["value"] for entry in container["env"]},
                "HOME": str(Path(self._folder, "homes", name)),
            }
            # Forked where torch is imported already: each would take longer to import it than to train.
            self.processes[name] = gangs.start(_run_module, container["command"], env, self._folder)

    def _gpus_of(self, name: str) -> int:
        return int(
            self.manifests[name]["spec"]["containers"][0]["resources"]
            .get("limits", {})
            .get("nvidia.com/gpu", 0)
        )

    def _is_stuck(self, name: str) -> bool:
        return any(f"-{node}-" in name for node in self.stuck)

    def _status_of(self, name: str) -> dict[str, Any]:
        if self._is_stuck(name):
            waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
            return {"phase": "Pending", "containerStatuses": [_container({"waiting": waiting})]}
        if name not in self.processes:
            unscheduled = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "Insufficient nvidia.com/gpu",
            }
            return {"phase": "Pending", "conditions": [unscheduled]}
        code = self.processes[name].exitcode
        if code is None or name == self.lost:
            return {"phase": "Running"}
        ended = {"exitCode": code if code >= 0 else 128 - code, "reason": "Error" if code else "Completed"}
        return {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [_container({"terminated": ended})],
        }


def _run_module(command: list[str], env: dict[str, str], folder: str) -> None:
    """Run the command ``python3 -m MODULE`` in this folder, with these variables and in its own session."""
    _, option, module = command
    assert option == "-m"
    os.setsid()
    os.environ.update(env)
    os.chdir(folder)
    sys.path.insert(0, folder)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _kill_all_of(process: BaseProcess) -> None:
    """A pod's processes."""
    assert process.pid is not None
    if process.is_alive():
        with suppress(ProcessLookupError):  # it has no session yet, and no other process
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.join()


def _container(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "trial", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}
