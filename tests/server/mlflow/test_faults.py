"""Faults, caused for real: killed servers and clients, full disks, an absent catalog and store."""

import concurrent.futures
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

import halving
from benchmarks.peers.installs import environment
from halving.store.store import Store
from tests.ports import free_port
from tests.postgres import Postgres
from tests.s3 import S3, Gate
from tests.sdk.imports.tools import python_with
from tests.server import plain_http
from tests.server.mlflow.scripts import AGAIN
from tests.server.processes import ServerProcess, server_of
from tests.waiting import wait_for

pytestmark = pytest.mark.slow

API = "/api/2.0/mlflow"
PROXY = "/api/2.0/mlflow-artifacts/artifacts"
_AGAIN = (429, 500, 502, 503, 504)  # as MLflow's client does

BATCHES = """
import os, sys
from pathlib import Path
os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag

client = MlflowClient()
run = client.create_run("0").info.run_id
Path("run").write_text(run)
for number in range(int(sys.argv[2])):
    steps = range(100 * number, 100 * number + 100)
    metrics = [Metric("loss", step / 7, 1_700_000_000_000 + step, step) for step in steps]
    params = [Param(f"p{number}", str(number))]
    again(client.log_batch, run, metrics, params, [RunTag("reached", str(number))])
    with open("acknowledged", "a") as file:
        file.write("x")
again(client.set_terminated, run)
"""


@pytest.fixture(scope="module")
def python() -> Path:
    return python_with("mlflow", "mlflow==3.17.2")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with server_of(str(tmp_path / "root")) as server:
        yield server


def post(address: str, path: str, **fields: Any) -> httpx2.Response:
    return plain_http.post(f"{address}{API}/{path}", json=fields, timeout=120)


def stubborn(client: httpx2.Client, path: str, **fields: Any) -> None:
    """Send the same until it is done, as MLflow's client does."""
    while True:
        try:
            answer = client.post(f"{API}/{path}", json=fields)
        except httpx2.TransportError:
            time.sleep(0.02)  # it is away
            continue
        if answer.status_code == 200:
            return
        assert answer.status_code in _AGAIN, answer.text
        time.sleep(float(answer.headers.get("Retry-After", 0.1)))


def new_run(address: str) -> str:
    return str(post(address, "runs/create", experiment_id="0").json()["run"]["info"]["run_id"])


def data_of(address: str, run: str) -> dict[str, dict[str, Any]]:
    answer = plain_http.get(f"{address}{API}/runs/get", params={"run_id": run}, timeout=60)
    return {
        kind: {item["key"]: item["value"] for item in items}
        for kind, items in answer.json()["run"]["data"].items()
    }


def steps(address: str, run: str, key: str = "loss") -> list[int]:
    answer = plain_http.get(
        f"{address}{API}/metrics/get-history", params={"run_id": run, "metric_key": key}, timeout=60
    )
    return [metric["step"] for metric in answer.json().get("metrics", [])]


def files(address: str, run: str) -> list[str]:
    answer = plain_http.get(f"{address}{API}/artifacts/list", params={"run_id": run}, timeout=60)
    return [file["path"] for file in answer.json().get("files", [])]


def points(first: int, count: int, key: str = "loss") -> list[dict[str, Any]]:
    return [
        {"key": key, "step": step, "value": step / 7, "timestamp": 1_700_000_000_000 + step}
        for step in range(first, first + count)
    ]


@contextmanager
def batches(
    python: Path, server: ServerProcess, work: Path, count: int
) -> Iterator["subprocess.Popen[bytes]"]:
    """MLflow's own client, which logs batches of 100 points."""
    work.mkdir()
    (work / "script.py").write_text(AGAIN + BATCHES)
    with subprocess.Popen(
        [str(python), "script.py", server.address, str(count)], cwd=work, env=environment(work)
    ) as client:
        try:
            yield client
        finally:
            client.kill()


def acknowledged_steps_of(work: Path) -> int:
    return (work / "acknowledged").stat().st_size if (work / "acknowledged").exists() else 0


def test_a_server_killed_again_and_again_loses_no_batch_and_has_none_twice(
    python: Path, server: ServerProcess, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    with batches(python, server, work, 120) as client:
        for reached in (5, 20, 40, 60, 80):
            wait_for(
                lambda reached=reached: acknowledged_steps_of(work) >= reached or client.poll() is not None,
                120,
                "batches",
            )  # type: ignore[misc]
            assert client.poll() is None
            server.kill()
            server.start()
        assert client.wait(300) == 0
    run = (work / "run").read_text()
    assert steps(server.address, run) == list(range(12_000))
    data = data_of(server.address, run)
    assert data["params"] == {f"p{number}": str(number) for number in range(120)}
    assert (data["tags"]["reached"], data["metrics"]["loss"]) == ("119", 11_999 / 7)
    rows = halving.sql("select step, value from points order by step", root=server.root).to_pylist()
    assert {row["step"]: row["value"] for row in rows} == {step: step / 7 for step in range(12_000)}


def test_a_killed_client_keeps_what_was_acknowledged_and_its_run_goes_on(
    python: Path, server: ServerProcess, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    with batches(python, server, work, 100_000) as client:
        wait_for(lambda: acknowledged_steps_of(work) >= 10, 120, "batches")
        client.kill()
        client.wait()
        run = (work / "run").read_text()
        acknowledged_steps = acknowledged_steps_of(work)
    stored_steps = steps(server.address, run)
    assert stored_steps == list(range(len(stored_steps)))
    assert len(stored_steps) in (
        100 * acknowledged_steps,
        100 * acknowledged_steps + 100,
    )  # its last batch was taken whole, or not at all
    assert (
        post(server.address, "runs/log-batch", run_id=run, metrics=points(len(stored_steps), 100)).status_code
        == 200
    )
    assert (
        post(server.address, "runs/update", run_id=run, status="FAILED").json()["run_info"]["status"]
        == "FAILED"
    )


def test_a_server_killed_during_an_upload_lists_nothing_and_accepts_it_again(
    server: ServerProcess,
) -> None:
    run = new_run(server.address)
    content = os.urandom(8 << 20)
    address = urlsplit(server.address)
    path = f"{PROXY}/0/{run}/artifacts/deep/weights"
    with socket.create_connection((address.hostname, address.port)) as half:
        half.sendall(
            (
                f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nContent-Length: "
                f"{len(content)}\r\n\r\n"
            ).encode()
        )
        half.sendall(content[: 4 << 20])
        server.wait_until_it_has_read(2 << 20)
        server.kill()
    server.start()
    assert files(server.address, run) == []
    assert list(Store(server.root).files("artifacts")) == []
    assert plain_http.put(f"{server.address}{path}", content=content, timeout=60).status_code == 200
    assert plain_http.get(f"{server.address}{path}", timeout=60).content == content


def test_a_client_that_is_killed_amid_an_upload_leaves_nothing(server: ServerProcess) -> None:
    run = new_run(server.address)
    address = urlsplit(server.address)
    path = f"{PROXY}/0/{run}/artifacts/weights"
    with socket.create_connection((address.hostname, address.port)) as half:
        half.sendall(
            (
                f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nContent-Length: {8 << 20}\r\n\r\n"
            ).encode()
        )
        half.sendall(os.urandom(4 << 20))
        server.wait_until_it_has_read(2 << 20)
    assert plain_http.put(f"{server.address}{path}2", content=b"x", timeout=60).status_code == 200
    assert files(server.address, run) == ["weights2"]


def _log_at_once(addresses: list[str], run: str) -> None:
    """Eight clients log into one run.

    Each logs a curve of its own, a common curve, and another value of a common param.
    """
    won: list[int] = []

    def log(number: int) -> None:
        with plain_http.client(base_url=addresses[number % len(addresses)], timeout=120) as client:
            for batch in range(10):
                own = points(100 * batch, 100, f"loss{number}") + points(
                    1_000 * number + 100 * batch, 100, "all"
                )
                stubborn(
                    client,
                    "runs/log-batch",
                    run_id=run,
                    metrics=own,
                    params=[{"key": f"own{number}/{batch}", "value": "x"}],
                )
            answer = client.post(
                f"{API}/runs/log-parameter", json={"run_id": run, "key": "lr", "value": str(number)}
            )
            if answer.status_code == 200:
                won.append(number)
            else:
                assert (answer.status_code, answer.json()["error_code"]) == (
                    400,
                    "INVALID_PARAMETER_VALUE",
                ), answer.text

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(log, range(8)))
    for number in range(8):
        assert steps(addresses[0], run, f"loss{number}") == list(range(1_000))
    assert steps(addresses[-1], run, "all") == list(range(8_000))
    params = data_of(addresses[-1], run)["params"]
    assert [str(number) for number in won] == [params.pop("lr")]
    assert params == {f"own{number}/{batch}": "x" for number in range(8) for batch in range(10)}


def test_clients_with_one_run_lose_nothing_and_of_a_param_exactly_one_value_wins(
    server: ServerProcess,
) -> None:
    _log_at_once([server.address], new_run(server.address))


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_replicas_on_one_store_and_catalog_take_one_runs_batches(
    where: str, postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "postgres":
        monkeypatch.setenv("HALVING_CATALOG", postgres.database(f"t{secrets.token_hex(6)}"))
    root = str(tmp_path / "root")
    with server_of(root) as replica, server_of(root) as other:
        _log_at_once([replica.address, other.address], new_run(replica.address))


def test_two_hundred_clients_that_come_back_at_once_are_all_taken(server: ServerProcess) -> None:
    count = 200
    runs = [new_run(server.address) for _ in range(count)]
    server.kill()
    back = threading.Event()

    def come(run: str) -> None:
        with plain_http.client(base_url=server.address, timeout=120) as client:
            back.wait()
            for batch in range(3):
                stubborn(client, "runs/log-batch", run_id=run, metrics=points(50 * batch, 50))

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        coming = [pool.submit(come, run) for run in runs]
        server.start()
        back.set()
        for future in coming:
            future.result()
    for run in runs:
        assert steps(server.address, run) == list(range(150))


def test_while_the_catalog_is_locked_a_client_is_told_to_come_again_and_does(
    python: Path, server: ServerProcess, tmp_path: Path
) -> None:
    run = new_run(server.address)
    work = tmp_path / "work"
    (catalog,) = Path(server.root).rglob("*.db")
    with (
        closing(sqlite3.connect(catalog, isolation_level=None)) as other,
        batches(python, server, work, 30) as client,
    ):
        wait_for(lambda: acknowledged_steps_of(work) >= 2, 120, "batches")
        other.execute("BEGIN IMMEDIATE")
        answer = post(server.address, "runs/log-batch", run_id=run, metrics=points(0, 10))
        assert (answer.status_code, answer.json()["error_code"]) == (503, "TEMPORARILY_UNAVAILABLE")
        assert int(answer.headers["Retry-After"]) > 0
        other.execute("ROLLBACK")
        assert client.wait(120) == 0
    assert post(server.address, "runs/log-batch", run_id=run, metrics=points(0, 10)).status_code == 200
    assert steps(server.address, run) == list(range(10))
    assert steps(server.address, (work / "run").read_text()) == list(range(3_000))


def test_while_the_store_is_away_nothing_is_acknowledged_and_clients_retry(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HALVING_CATALOG", f"sqlite:///{tmp_path}/catalog.db")
    line = Gate((s3.host, s3.port))
    with server_of(s3.root(secrets.token_hex(6), endpoint=line.endpoint)) as server:
        run = new_run(server.address)
        line.shut()
        path = f"{server.address}{PROXY}/0/{run}/artifacts/a"
        refused = [
            post(server.address, "runs/log-batch", run_id=run, metrics=points(0, 10)),
            post(server.address, "runs/log-parameter", run_id=run, key="lr", value="1"),
            plain_http.put(path, content=b"x", timeout=120),
        ]
        assert [(answer.status_code, answer.json()["error_code"]) for answer in refused] == [
            (503, "TEMPORARILY_UNAVAILABLE")
        ] * 3
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in refused)
        line.open()
        assert (steps(server.address, run), files(server.address, run)) == ([], [])
        assert "params" not in data_of(server.address, run)
        assert post(server.address, "runs/log-batch", run_id=run, metrics=points(0, 10)).status_code == 200
        assert plain_http.put(path, content=b"x", timeout=120).status_code == 200
        assert (steps(server.address, run), files(server.address, run)) == (list(range(10)), ["a"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 48 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"this user may not mount a small disk: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_one_clear_error_and_takes_everything_once_there_is_room(disk: Path) -> None:
    with server_of(str(disk / "root")) as server:
        run = new_run(server.address)
        path = f"{server.address}{PROXY}/0/{run}/artifacts/weights"
        large = plain_http.put(path, content=os.urandom(60 << 20), timeout=120)
        assert (large.status_code, large.json()["error_code"]) == (507, "INTERNAL_ERROR")
        assert "no room left on the server's disk" in large.json()["message"]
        assert files(server.address, run) == []
        assert [name for name in (disk / "root" / "artifacts").rglob("*") if name.is_file()] == []
        with (disk / "ballast").open("wb", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(bytes(4096))
            except OSError:
                pass
        refused = post(server.address, "runs/log-batch", run_id=run, metrics=points(0, 1_000))
        assert refused.status_code == 507, refused.text
        assert steps(server.address, run) == []
        (disk / "ballast").unlink()
        assert post(server.address, "runs/log-batch", run_id=run, metrics=points(0, 1_000)).status_code == 200
        assert plain_http.put(path, content=b"small", timeout=60).status_code == 200
        assert (steps(server.address, run), files(server.address, run)) == (list(range(1_000)), ["weights"])


def test_an_upload_of_which_nothing_comes_any_more_is_given_up(tmp_path: Path) -> None:
    script = """
        import sys
        from server.ingest import bodies
        from server.serving import serve
        from server.settings import Settings
        bodies.body_file.__wrapped__.__defaults__ = (0.5,)
        serve(Settings(root=sys.argv[1], port=int(sys.argv[2])))
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "root"), str(port)]
    ) as process:
        try:
            wait_for(lambda: _answers(address), 120, "the server answers")
            run = new_run(address)
            with socket.create_connection(("127.0.0.1", port), timeout=60) as half:
                path = f"{PROXY}/0/{run}/artifacts/weights"
                half.sendall(
                    (
                        f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {8 << 20}\r\n\r\n"
                    ).encode()
                    + bytes(1_000)
                )
                answer = half.recv(100_000)
            assert answer.startswith(b"HTTP/1.1 408 ")
            assert files(address, run) == []
        finally:
            process.send_signal(signal.SIGTERM)


def _answers(address: str) -> bool:
    try:
        return plain_http.get(f"{address}/health").status_code == 200
    except httpx2.TransportError:
        return False
