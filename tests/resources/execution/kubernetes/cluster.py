"""The API of a cluster whose pods wait until a test says otherwise, and whose requests may fail."""

import json
from collections.abc import Callable
from typing import Any

from kubernetes.client import ApiClient, ApiException, V1Pod
from urllib3.exceptions import HTTPError

IMAGE_ID = f"docker.io/train@sha256:{'12' * 32}"
"""Of every pod's image."""


class Cluster:
    """The part of the API that a trial's pod needs.

    ``fails`` has for each verb what its next calls raise, ``status`` what becomes of a pod, and ``created``
    gets the manifest of each.
    """

    def __init__(self) -> None:
        self.status: dict[str, Any] = {"phase": "Pending"}
        self.created: Callable[[dict[str, Any]], None] = lambda _: None
        self.pods: dict[str, V1Pod] = {}
        self.fails: dict[str, list[Exception]] = {}
        self.loses_answers = False

    def create_namespaced_pod(self, _namespace: str, manifest: dict[str, Any], **_: Any) -> None:
        self._fail("create")
        self.pods[manifest["metadata"]["name"]] = self._pod(manifest)
        self.created(manifest)
        if self.loses_answers:
            raise HTTPError("read timed out")

    def delete_namespaced_pod(self, name: str, _namespace: str, **_: Any) -> None:
        self._fail("delete")
        if self.pods.pop(name, None) is None:
            raise ApiException(404, "Not Found")

    def read_namespaced_pod(self, name: str, _namespace: str, **_: Any) -> V1Pod:
        self._fail("read")
        if name not in self.pods:
            raise ApiException(404, "Not Found")
        pod = self.pods[name]
        pod.status = self._pod({}).status
        return pod

    def list_namespaced_pod(self, _namespace: str, *, label_selector: str, **_: Any) -> Any:
        wanted = dict(pair.split("=") for pair in label_selector.split(","))
        return type(
            "Found",
            (),
            {"items": [pod for pod in self.pods.values() if wanted.items() <= pod.metadata.labels.items()]},
        )

    def list_namespaced_event(self, _namespace: str, **_: Any) -> Any:
        return type("Found", (), {"items": []})

    def _fail(self, verb: str) -> None:
        if self.fails.get(verb):
            raise self.fails[verb].pop(0)

    def _pod(self, manifest: dict[str, Any]) -> V1Pod:
        container = {
            "name": "trial",
            "image": "train:1",
            "imageID": IMAGE_ID,
            "ready": True,
            "restartCount": 0,
        }
        status = {"containerStatuses": [container], **self.status}
        data = json.dumps({"spec": {"containers": [{"name": "trial"}]}, **manifest, "status": status})
        return ApiClient().deserialize(type("Response", (), {"data": data}), "V1Pod")
