"""Dagster's command line of 2026, ``dg``, in the checkout."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from resources.analysis.sweep_list import list_sweeps
from tests.backends import CHECKOUT, Dagster
from tests.ports import free_port
from tests.waiting import wait_while_running

pytestmark = pytest.mark.slow

DG = str(Path(sys.executable).parent / "dg")


def run_dg(dagster: Dagster, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [DG, *arguments], cwd=CHECKOUT, env=dagster.environment, capture_output=True, text=True, check=False
    )


def test_dg_check_defs_loads_the_definitions(tmp_path: Path) -> None:
    checked = run_dg(Dagster(tmp_path), "check", "defs")
    assert checked.returncode == 0, checked.stderr
    assert "All definitions loaded successfully" in checked.stdout + checked.stderr


def test_dg_launch_runs_a_sweep(tmp_path: Path, small: Callable[..., dict[str, Any]]) -> None:
    dagster = Dagster(tmp_path)
    spec = tmp_path / "sweep.yaml"
    spec.write_text(yaml.safe_dump(small(max_trials=2)))
    launched = run_dg(dagster, "launch", "--job", "sweep", "--config", str(spec))
    assert launched.returncode == 0, launched.stderr[-3000:]
    assert [sweep.status for sweep in list_sweeps(dagster.backend.catalog)] == ["finished"]


def test_dg_launch_of_a_wrong_spec_fails_and_names_the_field(tmp_path: Path) -> None:
    spec = tmp_path / "sweep.yaml"
    spec.write_text("{name: small, max_trials: none}")
    launched = run_dg(Dagster(tmp_path), "launch", "--job", "sweep", "--config", str(spec))
    assert launched.returncode != 0
    assert "max_trials" in launched.stdout + launched.stderr


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.timeout(900)
def test_dg_dev_opens_dagster_with_its_sensors(tmp_path: Path) -> None:
    port = free_port()
    log = tmp_path / "dev.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [DG, "dev", "--port", str(port)],
            cwd=CHECKOUT,
            env=Dagster(tmp_path).environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_while_running(process, lambda: is_listening(port), log, "the webserver answers")
        wait_while_running(process, lambda: "launch_requested" in log.read_text(), log, "the sensors run")
        assert "dagster_version" in httpx2.get(f"http://127.0.0.1:{port}/server_info").json()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
