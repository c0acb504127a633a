"""Pods as the API gives them, from the JSON that a cluster has sent."""

from typing import Any

from kubernetes.client import ApiClient, CoreV1Event, V1Pod


class _Response:
    def __init__(self, data: Any) -> None:
        import json

        self.data = json.dumps(data)


def pod(phase: str = "Pending", *, containers: list[dict[str, Any]] | None = None, **status: Any) -> V1Pod:
    """A pod of one container ``trial`` with a memory limit of 2Gi."""
    manifest = {
        "metadata": {"name": "pod-1", "uid": "u"},
        "spec": {
            "nodeName": "node1",
            "containers": [{"name": "trial", "resources": {"limits": {"memory": "2Gi"}}}],
        },
        "status": {
            "phase": phase,
            "containerStatuses": [container(state) for state in containers or []],
            **status,
        },
    }
    return ApiClient().deserialize(_Response(manifest), "V1Pod")


def container(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "trial", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state}


def event(kind: str, reason: str, message: str, at: str) -> CoreV1Event:
    fields = {
        "metadata": {"name": "e"},
        "involvedObject": {},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }
    return ApiClient().deserialize(_Response(fields), "CoreV1Event")


def as_known(fields: dict[str, Any], kind: str) -> Any:
    """What Kubernetes' API knows of an object; fields with other names fall away."""
    client = ApiClient()
    return client.sanitize_for_serialization(client.deserialize(_Response(fields), kind))
