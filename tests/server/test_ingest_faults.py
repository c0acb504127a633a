"""Killed servers and clients, and many at once: every logged point is in the store once."""

import concurrent.futures
import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import numpy as np
import pytest

import halving
from halving.errors import AlreadyExists, StoreUnavailable
from halving.ingest.recovery import recover
from halving.query.runs import read_run
from halving.store.server_store import ServerStore
from halving.store.store import Store
from tests.ports import free_port
from tests.server import plain_http
from tests.server.ingested import points, stored_points
from tests.server.processes import ServerProcess, is_answering, server_of
from tests.waiting import wait_for

ODD_NAMES = [
    "Confusion matrix (épreuve 2) 50%.csv",
    "a+b=c&d.txt",
    "#3 résumé.md",
    "日本語.json",
    "deep/er/[1]?.pt",
    "A",
    "a",
    ".hidden",
]


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:halving")]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The server's store; the clients' journals are elsewhere."""
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    return str(tmp_path / "root")


@pytest.fixture
def server(root: str) -> Iterator[ServerProcess]:
    with server_of(root) as server:
        yield server


def _recover(server: ServerProcess) -> list[str]:
    """What becomes of the journals here."""
    with contextlib.closing(ServerStore(server.address)) as store:
        return [recovered.state for recovered in recover(store)]


def _steps(root: str, run: str, key: str = "loss") -> list[int]:
    return sorted(step for step, _ in stored_points(root, run, key))


def test_a_run_by_a_server_has_all_that_a_run_by_the_store_has(
    server: ServerProcess, root: str, tmp_path: Path
) -> None:
    (tmp_path / "notes.txt").write_text("as trained")
    with halving.init("p", {"lr": 0.1}, url=server.address, seed=3, tags={"team": "vision"}) as run:
        for epoch in run.epochs(2):
            run.log({"loss": 1.0 / epoch, "sample": halving.Image(np.zeros((4, 4), np.uint8))}, step=epoch)
            run.report(val_loss=1.0 / epoch)
            run.save(weights=np.full(4, epoch))
        run.log_artifact(tmp_path / "notes.txt")
        for name in ODD_NAMES:
            (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "folder" / name).write_text(name)
        run.log_artifact(tmp_path / "folder")
    again = halving.init("p", url=server.address, id=run.id)
    assert (again.attempt, again.params, again.restore(weights=None)["weights"].tolist(), again.epoch) == (
        2,
        {"lr": 0.1},
        [2] * 4,
        2,
    )
    again.finish()
    info = read_run(Store(root), "p", run.id)
    assert ([attempt.status for attempt in info.attempts], info.seed, info.tags) == (
        ["finished"] * 2,
        3,
        {"team": "vision"},
    )
    assert info.provenance["packages"]
    assert _steps(root, run.id) == [1, 2]
    media = plain_http.get(f"{server.address}/api/v1/media", params={"run": f"p/{run.id}"}).json()["media"]
    assert [(row["key"], row["step"]) for row in media] == [("sample", 1), ("sample", 2)]
    artifacts = {
        row["name"]: row
        for row in plain_http.get(f"{server.address}/api/v1/runs/p/{run.id}").json()["artifacts"]
    }
    artifact = artifacts.pop("notes.txt")
    contents = {name: Store(root).get_blob(row["digest"]).decode() for name, row in artifacts.items()}
    assert contents == {f"folder/{name}": name for name in ODD_NAMES}
    blob = plain_http.get(
        f"{server.address}/api/v1/blobs/{artifact['digest']}", params={"run": f"p/{run.id}"}
    )
    assert blob.content == b"as trained"
    name = f"p/{run.id}"
    assert halving.tag_run(name, {"paper": "3", "team": None}, url=server.address) == {"paper": "3"}
    assert halving.note(name, "**kept**", url=server.address) == "note:1"
    changed = [
        change(name, url=server.address)
        for change in (halving.archive_run, halving.delete_run, halving.delete_run)
    ]
    assert (changed, read_run(Store(root), "p", run.id).lifecycle) == ([True, True, False], "deleted")
    assert halving.restore_run(name, url=server.address)
    with pytest.raises(halving.InvalidInput, match="is not accepted with a server: give project/run"):
        halving.delete_run(run.id, url=server.address)
    with pytest.raises(halving.NotFound, match="no run 'none' in project 'p'"):
        halving.delete_run("p/none", url=server.address)


def test_a_server_killed_again_and_again_loses_nothing_and_takes_nothing_twice(
    server: ServerProcess, root: str
) -> None:
    run = halving.init("p", {}, url=server.address, system_metrics=None)
    ended = threading.Event()

    def kill() -> None:
        for _ in range(3):
            before = len(_steps(root, run.id))
            wait_for(lambda before=before: len(_steps(root, run.id)) > before, 60, "a batch more")  # type: ignore[misc]
            server.kill()
            server.start()
        ended.set()

    killer = threading.Thread(target=kill)
    killer.start()
    step = 0
    while not ended.is_set():
        for _ in range(500):
            run.log(
                {"loss": float(step), "sample": halving.Text(f"{step}")}
                if step % 100 == 0
                else {"loss": float(step)},
                step=step,
            )
            step += 1
        run.flush(0.2)
    killer.join()
    assert run.flush(60)
    run.finish()
    assert _steps(root, run.id) == list(range(step))
    assert len(Store(root).names(f"runs/project=p/{run.id}/media")) == -(-step // 100)
    assert read_run(Store(root), "p", run.id).status == "finished"


def test_a_run_trains_on_while_its_server_is_away_and_ends_there_when_it_is_back(
    server: ServerProcess, root: str
) -> None:
    run = halving.init("p", {}, url=server.address, system_metrics=None)
    server.kill()
    began = time.monotonic()
    for step in range(100_000):
        run.log({"loss": float(step)}, step=step)
    assert time.monotonic() - began < 30  # nothing waited for an answer
    assert not run.flush(0.5)
    starting = threading.Thread(target=server.start)
    starting.start()
    run.finish()
    starting.join()
    if read_run(Store(root), "p", run.id).status != "finished":  # it took longer than the end of a run waits
        assert _recover(server) == ["recovered"]
    assert _steps(root, run.id) == list(range(100_000))
    assert read_run(Store(root), "p", run.id).status == "finished"


_CLIENT = """
import sys, halving
run = halving.init("p", {}, url=sys.argv[1], id="killed", system_metrics=None)
for step in range(10_000):
    run.log({"loss": float(step)}, step=step)
run.flush(30)
for step in range(10_000, 20_000):
    run.log({"loss": float(step)}, step=step)
print("logged", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("by", ["recover", "the next attempt", "halving recover"])
def test_what_a_killed_client_left_in_its_journal_is_sent_later_and_once(
    server: ServerProcess, root: str, by: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CLIENT, server.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"logged\n"
        client.kill()
    if by == "recover":
        assert _recover(server) == ["recovered"]
    elif by == "halving recover":
        command = [sys.executable, "-m", "halving.cli.main", "recover", "p/killed", "--url", server.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert "recovered" in done.stdout
    else:
        run = halving.init("p", url=server.address, id="killed", system_metrics=None)
        assert run.attempt == 2
        run.finish()
    assert _steps(root, "killed") == list(range(20_000))
    assert _recover(server) == []


def test_a_server_killed_during_an_upload_has_nothing_of_it_and_accepts_it_again(
    server: ServerProcess, root: str
) -> None:
    content = os.urandom(8 << 20)
    digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
    address = urlsplit(server.address)
    with socket.create_connection((address.hostname, address.port)) as half:
        head = (
            f"PUT /api/v1/blobs/{digest} HTTP/1.1\r\nHost: 127.0.0.1:{address.port}\r\nContent-Length: "
            f"{len(content)}\r\n\r\n"
        )
        half.sendall(head.encode() + content[: 4 << 20])
        server.wait_until_it_has_read(2 << 20)
        server.kill()
    server.start()
    store = Store(root)
    assert not store.has_blob(digest)
    assert list(store.files("artifacts")) == []
    with contextlib.closing(ServerStore(server.address)) as client:
        assert client.put_blob(content) == digest
    assert store.get_blob(digest) == content


def test_two_clients_with_one_run_have_an_attempt_each_and_no_point_is_lost(
    server: ServerProcess, root: str
) -> None:
    def train(number: int) -> None:
        run = halving.init("p", {"lr": 1}, url=server.address, id="shared", system_metrics=None)
        for step in range(1000):
            run.log({f"loss{number}": float(step)}, step=step)
        run.finish()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(train, range(4)))
    info = read_run(Store(root), "p", "shared")
    assert [attempt.status for attempt in info.attempts] == ["finished"] * 4
    for number in range(4):
        assert _steps(root, "shared", f"loss{number}") == list(range(1000))


def test_replicas_take_one_runs_batches_and_one_that_is_killed_amid_them_loses_none(
    server: ServerProcess, root: str
) -> None:
    """Each batch goes to both at once, as a client does that has lost an answer."""
    whose: dict[str, str | int] = {"project": "p", "run": "r", "attempt": 1}
    assert (
        plain_http.post(
            f"{server.address}/api/v1/ingest/begin", json={"project": "p", "run": "r"}, timeout=60
        ).status_code
        == 201
    )

    def send(to: ServerProcess, sequence: int) -> None:
        while True:
            try:
                batch = {"points": points(50 * sequence, 50 * sequence + 50)}
                answer = plain_http.post(
                    f"{to.address}/api/v1/ingest",
                    params={**whose, "sequence": sequence},
                    json=batch,
                    timeout=60,
                )
            except httpx2.TransportError:
                time.sleep(0.02)  # it is away
                continue
            assert answer.status_code in (200, 429, 503), answer.text
            if answer.status_code == 200:
                assert answer.json() == {"points": 50, "next": sequence + 1}
                return

    with server_of(root) as other, concurrent.futures.ThreadPoolExecutor(2) as pool:
        for sequence in range(60):
            sending = [pool.submit(send, to, sequence) for to in (server, other)]
            if sequence in (20, 40):
                other.kill()
                other.start()
            for sent in sending:
                sent.result()
    assert plain_http.post(f"{server.address}/api/v1/ingest/end", json=whose, timeout=60).status_code == 200
    assert _steps(root, "r") == list(range(3_000))


def test_two_hundred_clients_that_come_back_at_once_are_all_taken(server: ServerProcess, root: str) -> None:
    count = 200
    batch = {"points": points(0, 50)}
    for number in range(count):
        begun = plain_http.post(
            f"{server.address}/api/v1/ingest/begin", json={"project": "p", "run": f"r{number}"}, timeout=60
        )
        assert begun.status_code == 201
    server.kill()
    back = threading.Event()

    def come(number: int) -> int:
        """Send three batches; how often it was told to come later."""
        later = 0
        with plain_http.client(base_url=server.address, timeout=120) as client:
            back.wait()
            for sequence in range(3):
                query: dict[str, str | int] = {
                    "project": "p",
                    "run": f"r{number}",
                    "attempt": 1,
                    "sequence": sequence,
                }
                while True:
                    try:
                        answer = client.post("/api/v1/ingest", params=query, json=batch)
                    except httpx2.TransportError:
                        time.sleep(0.02)
                        later += 1
                        continue
                    if answer.status_code == 200:
                        break
                    assert answer.status_code in (429, 503), answer.text
                    time.sleep(float(answer.headers["Retry-After"]))
                    later += 1
        return later

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        coming = [pool.submit(come, number) for number in range(count)]
        server.start()
        back.set()
        assert len([future.result() for future in coming]) == count
    for number in range(count):
        assert _steps(root, f"r{number}") == sorted(list(range(50)) * 3)


def test_a_server_that_is_too_busy_is_asked_again_and_nothing_is_dropped(root: str) -> None:
    """Every second batch finds no memory; the journal keeps it and sends it after the requested pause."""
    script = """
        import itertools, sys, time
        from server.ingest import memory_budget
        from server.serving import serve
        from server.settings import Settings
        asked, reserve = itertools.count(), memory_budget.MemoryBudget.reserve
        def sometimes(self, size):
            number = next(asked)
            print("asked", number, time.monotonic(), flush=True)
            if number % 2:
                raise memory_budget.BudgetExhausted("there is none: send this again in 1 s")
            return reserve(self, size)
        memory_budget.MemoryBudget.reserve = sometimes
        serve(Settings(root=sys.argv[1], port=int(sys.argv[2])))
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), root, str(port)], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_for(lambda: is_answering(address), 120, "the server answers")
            run = halving.init("p", {}, url=address, system_metrics=None)
            for step in range(1000):
                run.log({"loss": float(step)}, step=step)
                if step % 100 == 0:
                    run.flush(0.2)  # which rings the drain
            assert run.flush(60)
            run.finish()
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        times = [float(line.split()[2]) for line in process.stdout if line.startswith("asked")]
    assert _steps(root, run.id) == list(range(1000))
    gaps = [after - refused for refused, after in zip(times[1::2], times[2::2], strict=False)]
    assert min(gaps) >= 1.0


def test_a_store_that_was_restored_from_a_backup_takes_what_is_logged_from_then_on(
    server: ServerProcess, root: str, tmp_path: Path
) -> None:
    run = halving.init("p", {}, url=server.address, system_metrics=None)

    def log(first: int) -> None:
        for step in range(first, first + 100):
            run.log({"loss": float(step)}, step=step)
        assert run.flush(60)

    log(0)
    shutil.copytree(root, tmp_path / "backup")
    log(100)
    log(200)
    server.kill()
    shutil.rmtree(root)
    shutil.copytree(tmp_path / "backup", root)
    server.start()
    with pytest.warns(UserWarning, match="lacks the points .* restored from a backup"):
        log(300)
    log(400)
    run.finish()
    assert _steps(root, run.id) == [*range(100), *range(300, 500)]
    assert read_run(Store(root), "p", run.id).status == "finished"


def test_an_absent_server_is_unavailable_and_other_answers_say_what_they_are(
    server: ServerProcess,
) -> None:
    with pytest.raises(StoreUnavailable, match="does not answer"):
        ServerStore(f"http://127.0.0.1:{free_port()}").names("runs/project=p/r")
    store = ServerStore(server.address)
    content = (
        b'{"project": "p", "run": "r", "params": {}, "parent": {}, "attempt": 1, '
        b'"started": "2026-01-01T00:00:00+00:00"}'
    )
    store.create("runs/project=p/r/record.json", content)
    store.create("runs/project=p/r/record.json", content)
    with pytest.raises(AlreadyExists):
        store.create("runs/project=p/r/record.json", content.replace(b"2026", b"2025"))
    with pytest.raises(halving.NotFound):
        store.read("runs/project=p/none/record.json")
    assert [store.exists(f"runs/project=p/{run}/record.json") for run in ("r", "none")] == [True, False]
    server.kill()
    server.start()
    assert store.names("runs/project=p/r") == ["record.json"]  # over a new connection
    store.close()
