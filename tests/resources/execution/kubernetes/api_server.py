"""The API of a test's cluster over HTTP, for Kubernetes' own client in a worker's own process."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml
from kubernetes.client import ApiClient, ApiException

from tests.resources.execution.kubernetes.cluster import Cluster

_NAMESPACE = "n"


@contextmanager
def serve_api(cluster: Cluster, kube_config: Path) -> Iterator[None]:
    """Answer requests one after another; writes ``kube_config``, for the variable ``KUBECONFIG``."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # as the base class calls it
            self._answer()

        do_POST = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            url = urlsplit(self.path)
            _, _, rest = url.path.partition(f"/namespaces/{_NAMESPACE}/")
            kind, _, name = rest.partition("/")
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            try:
                status = 200
                answer = _answer_of(cluster, self.command, kind, name, query | body)
            except ApiException as error:
                status = error.status
                answer = {"message": error.reason}
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": _NAMESPACE}}
    address = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
    user: dict[str, Any] = {"name": "u", "user": {}}
    kube_config.write_text(
        yaml.safe_dump(
            {"contexts": [context], "clusters": [address], "users": [user], "current-context": "c"}
        )
    )
    thread = threading.Thread(target=server.serve_forever, name="api-server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer_of(cluster: Cluster, verb: str, kind: str, name: str, options: dict[str, Any]) -> Any:
    serialize = ApiClient().sanitize_for_serialization
    if kind != "pods":
        return {"items": []} if verb == "GET" else options  # events, and network policies
    if verb == "POST":
        cluster.create_namespaced_pod(_NAMESPACE, options)
        return options
    if verb == "DELETE":
        seconds = options.get("gracePeriodSeconds")
        cluster.delete_namespaced_pod(
            name, _NAMESPACE, **({} if seconds is None else {"grace_period_seconds": int(seconds)})
        )
        return {}
    if name:
        return serialize(cluster.read_namespaced_pod(name, _NAMESPACE))
    return {
        "items": serialize(
            cluster.list_namespaced_pod(_NAMESPACE, label_selector=options["labelSelector"]).items
        )
    }
