"""The probes of deploy/, asked of what they probe: the containers' own commands, with the installed
Dagster.
"""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster._daemon.types import DaemonHeartbeat

from tests.backends import CHECKOUT
from tests.ports import free_port
from tests.waiting import wait_for

BASE = CHECKOUT / "deploy" / "kubernetes" / "base"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Dagster home of its own, in place of the one with Postgres and S3."""
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize(("since_heartbeat", "code"), [(0, 0), (700, 1)])
def test_a_daemon_is_live_for_ten_minutes_after_its_last_heartbeat(
    home: Path, since_heartbeat: float, code: int
) -> None:
    container = _container("daemon")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        for kind in instance.get_required_daemon_types():
            instance.add_daemon_heartbeat(DaemonHeartbeat(time.time() - since_heartbeat, kind, "a", []))
    done = subprocess.run(
        _here(container["livenessProbe"]["exec"]["command"]),
        env=_environment(container, home),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["webserver", "code-location"])
def test_a_server_answers_its_probes_once_it_serves(home: Path, name: str) -> None:
    container = _container(name)
    port = free_port()
    ports = {entry["name"]: entry["containerPort"] for entry in container["ports"]}
    # On this machine the port is another, and so is the place of the workspace; nobody is where that points
    # to, which may not matter.
    other = {
        str(*ports.values()): str(port),
        "/opt/dagster/workspace/workspace.yaml": str(BASE / "workspace.yaml"),
        "0.0.0.0": "127.0.0.1",
    }
    command = [other.get(word, word) for word in _here(container["command"])]
    with (home / "log").open("w") as log:
        server = subprocess.Popen(
            command, env=_environment(container, home), stdout=log, stderr=log, cwd=CHECKOUT
        )
    try:
        for probe in (container["startupProbe"], container["readinessProbe"], container["livenessProbe"]):
            seconds = probe.get("failureThreshold", 3) * probe["periodSeconds"]
            wait_for(lambda probe=probe: _answers(probe, ports, port), seconds, f"{name} to answer {probe}")
    except TimeoutError as error:
        error.add_note((home / "log").read_text())
        raise
    finally:
        server.terminate()
        server.wait(30)


def _answers(probe: dict[str, Any], ports: dict[str, int], port: int) -> bool:
    address = probe.get("httpGet") or probe["tcpSocket"]
    assert address["port"] in ports
    try:
        if "httpGet" in probe:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}{address['path']}", timeout=probe.get("timeoutSeconds", 1)
            ) as answer:
                return answer.status == 200
        with socket.create_connection(("127.0.0.1", port), timeout=probe.get("timeoutSeconds", 1)):
            return True
    except OSError:
        return False


def _container(deployment: str) -> dict[str, Any]:
    (manifest,) = [
        item
        for item in yaml.safe_load_all((BASE / f"{deployment}.yaml").read_text())
        if item["kind"] == "Deployment"
    ]
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return container


def _here(command: list[str]) -> list[str]:
    """The command with the program of this Python's environment."""
    return [str(Path(sys.executable).with_name(command[0])), *command[1:]]


def _environment(container: dict[str, Any], home: Path) -> dict[str, str]:
    variables = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    variables.pop("HALVING_CLUSTER", None)  # It names a file of the pod.
    return {**os.environ, **variables, "DAGSTER_HOME": str(home), "HALVING_ROOT": str(home / "root")}
