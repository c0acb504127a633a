"""A database, a folder and a server that MLflow itself has made: from an environment of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from benchmarks.peers.installs import environment
from halving.cli.main import main
from halving.imports.foreign_run import Skipped
from halving.imports.mlflow_folder import Folder
from halving.imports.mlflow_server import Server
from halving.imports.mlflow_source import Experiment, MlflowRun
from halving.imports.mlflow_tracking import read_runs
from halving.query.runs import list_runs, read_run
from halving.store.store import Store, digest_of
from tests.permissions import deny_access
from tests.ports import free_port
from tests.sdk.imports.copies import outcomes, points, run_import
from tests.sdk.imports.tools import python_with, run_script
from tests.waiting import wait_for

LOGGING = """
import os, sys
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
import numpy as np
from mlflow import MlflowClient
from mlflow.entities import Metric

client = MlflowClient()
mlflow.set_experiment("My digits/größer")
tags = {"team": "vision", "mlflow.source.git.commit": "c0ffee"}
with mlflow.start_run(run_name="the first", tags=tags) as run:
    mlflow.log_params({"lr": 0.1, "layers": 3, "flag": True, "optimizer": "adam"})
    mlflow.log_params({"nested/name": "007", "big": 1e400})
    for step in range(20):
        mlflow.log_metric("train/loss", 1 / (step + 1), step=step, timestamp=1_700_000_000_000 + step)
    mlflow.log_metric("größe", 2.5, step=7)
    mlflow.log_metric("odd", float("nan"), step=1)
    Path("a.txt").write_text("hello")
    mlflow.log_artifact("a.txt")
    mlflow.log_artifact("a.txt", "deep/er")
    mlflow.log_dict({"a": 1}, "deep-er-a.txt")
experiment = mlflow.get_experiment_by_name("My digits/größer").experiment_id
many = client.create_run(experiment, run_name="many").info.run_id
for first in range(0, 26_000, 1_000):
    steps = range(first, first + 1_000)
    client.log_batch(many, metrics=[Metric("loss", float(n), 1_700_000_000_000 + n, n) for n in steps])
client.set_terminated(many)
running = client.create_run(experiment, run_name="running").info.run_id
client.log_metric(running, "loss", 1.0, step=0, timestamp=1_700_000_000_000)
client.log_text(running, "begun", "notes.txt")
failed = client.create_run(experiment, run_name="failed").info.run_id
client.set_terminated(failed, "FAILED")
killed = client.create_run(experiment, run_name="killed").info.run_id
client.set_terminated(killed, "KILLED")
client.delete_run(client.create_run(experiment).info.run_id)
client.delete_experiment(client.create_experiment("gone"))
client.create_registered_model("a model")
client.set_experiment_tag(experiment, "team", "vision")
client.set_experiment_tag(experiment, "goal", "digits")
data = mlflow.data.from_numpy(np.zeros(3), name="zeros")
with mlflow.start_run(run.info.run_id):
    mlflow.log_input(data, context="training")
for number in range(3):
    with mlflow.start_span(f"span {number}"):
        pass
mlflow.flush_trace_async_logging()
Path("running").write_text(running)
"""

MORE = """
import os, sys
from pathlib import Path

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
os.environ["MLFLOW_TRACKING_URI"] = sys.argv[1]
import mlflow
from mlflow import MlflowClient

client, running = MlflowClient(), Path("running").read_text()
client.log_metric(running, "loss", 0.5, step=1, timestamp=1_700_000_000_001)
client.log_metric(running, "loss", 0.25, step=2, timestamp=1_600_000_000_000)
client.log_metric(running, "later", 3.0, step=1, timestamp=1_700_000_000_001)
client.log_text(running, mlflow.artifacts.load_text(f"runs:/{running}/notes.txt") + " and ended", "notes.txt")
client.set_terminated(running)
"""

STORES = {"database": "sqlite:///mlflow.db", "folder": "./mlruns", "server": "sqlite:///mlflow.db"}


@pytest.fixture(scope="module")
def python() -> Path:
    return python_with("mlflow", "mlflow==3.17.2")


@pytest.fixture(scope="module")
def mlflow_logs(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folder in which MLflow logged, by the kind of its store."""
    folders = {}
    for kind in ("database", "folder"):
        folders[kind] = tmp_path_factory.mktemp(kind)
        run_script(python, LOGGING, folders[kind], STORES[kind])
    return {**folders, "server": folders["database"]}


@pytest.fixture(params=list(STORES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def logs(kind: str, mlflow_logs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the folder in which MLflow logged, for the test alone. The test works in it."""
    shutil.copytree(mlflow_logs[kind], tmp_path / "logs")
    monkeypatch.chdir(tmp_path / "logs")
    return tmp_path / "logs"


@pytest.fixture(scope="module")
def server(
    python: Path, mlflow_logs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of MLflow's server on a copy of what it logged.

    It runs without its jobs, for which it would start eight more processes.
    """
    folder = shutil.copytree(mlflow_logs["server"], tmp_path_factory.mktemp("server") / "logs")
    port = free_port()
    command = [
        str(python),
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        STORES["server"],
        "--port",
        str(port),
        "--workers",
        "1",
    ]
    with (folder / "server.log").open("w") as log:
        variables = environment(folder) | {
            "PATH": f"{python.parent}:{os.environ['PATH']}",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        }
        server = subprocess.Popen(
            command, cwd=folder, env=variables, stdout=log, stderr=log, start_new_session=True
        )
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: server.poll() is not None or _answers(address), 240, "MLflow's server to answer")
        assert server.poll() is None, (folder / "server.log").read_text()
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


@pytest.fixture
def source(kind: str, logs: Path, request: pytest.FixtureRequest) -> str:
    """What ``halving import mlflow`` is given."""
    return request.getfixturevalue("server") if kind == "server" else STORES[kind]


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "store")


def by_name(root: str) -> dict[str, Any]:
    return {info.tags.get("name", ""): info for info in list_runs(Store(root))}


KILLED = """
import os, signal, sys
from halving.cli.main import main
from halving.imports import foreign_run
from halving.store.store import Store, digest_of

foreign_run.PIECE_POINTS = 1_000
create, left = Store.create, [int(sys.argv[2])]

def dies(*given, **options):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    create(*given, **options)

Store.create = dies
main(["import", "mlflow", sys.argv[1], "--root", sys.argv[3]])
"""


def run_facts(root: str) -> dict[str, Any]:
    return {info.run: (info.status, len(info.attempts), info.params) for info in list_runs(Store(root))}


def artifact_names(root: str) -> list[str]:
    return sorted(path.name for path in Path(root).glob("runs/*/*/artifacts/*.json"))


@pytest.mark.slow
@pytest.mark.xdist_group("mlflow")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["database", "server"])
def test_imports_that_are_killed_or_run_at_once_take_all_and_nothing_twice(
    source: str, logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They only read; the next test writes into the server's store, and so comes after this one."""
    whole = str(tmp_path / "whole")
    run_import(capsys, "mlflow", source, whole)

    def is_whole(root: str) -> None:
        assert points(root) == points(whole)
        assert run_facts(root) == run_facts(whole)
        assert artifact_names(root) == artifact_names(whole)

    for writes in (1, 3, 12):
        root = str(tmp_path / f"killed{writes}")
        done = subprocess.run(
            [sys.executable, "-c", KILLED, source, str(writes), root], capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL
        run_import(capsys, "mlflow", source, root)
        is_whole(root)
    root = str(tmp_path / "together")
    command = [sys.executable, "-m", "halving.cli.main", "import", "mlflow", source, "--root", root]
    importers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    outputs = [importer.communicate(timeout=300)[0] for importer in importers]
    assert [importer.returncode for importer in importers] == [0, 0], outputs
    is_whole(root)


@pytest.mark.slow
@pytest.mark.xdist_group("mlflow")
@pytest.mark.timeout(900)
def test_what_was_logged_is_there_and_what_is_new_comes_later_and_nothing_twice(
    kind: str,
    source: str,
    logs: Path,
    mlflow_logs: dict[str, Path],
    python: Path,
    root: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    report = run_import(capsys, "mlflow", source, root)
    names = {info.run: name for name, info in by_name(root).items()}
    assert {names[run]: counts for run, counts in outcomes(report).items()} == {
        "the first": ("new", 22, 0, 3),
        "many": ("new", 26_000, 0, 0),
        "running": ("new", 1, 0, 1),
        "failed": ("new", 0, 0, 0),
        "killed": ("new", 0, 0, 0),
    }
    assert report["not_taken"].pop("MLflow's own tags (mlflow.…)") >= 1  # such as mlflow.source.type
    used = {"contexts of datasets (for what a run used them)": 1}
    if kind == "folder":
        used = {"datasets that runs used": 1}
    left_out = {
        "deleted runs": 1,
        "deleted experiments": 1,
        "registered models": 1,
        "traces": 3,
        "tags of experiments": 2,
    }
    assert report["not_taken"] == left_out | used
    assert report["taken"].items() >= {"points": 22 + 26_000 + 1, "artifacts": 4, "params": 6}.items()
    first = by_name(root)["the first"]
    assert first.project == "My-digits-gr-er"
    assert first.params == {
        "lr": 0.1,
        "layers": 3,
        "flag": True,
        "optimizer": "adam",
        "nested/name": "007",
        "big": float("inf"),
    }
    assert (first.tags["team"], first.provenance["git"]["commit"]) == ("vision", "c0ffee")
    assert {name: info.status for name, info in by_name(root).items()} == {
        "the first": "finished",
        "many": "finished",
        "running": "running",
        "failed": "failed",
        "killed": "terminated",
    }
    of_first = [(key, step, value) for run, key, step, value, _ in points(root) if run == first.run]
    expected = [("train/loss", step, 1 / (step + 1)) for step in range(20)]
    assert of_first == sorted([*expected, ("größe", 7, 2.5), ("odd", 1, "nan")])
    many = by_name(root)["many"].run
    assert [(step, value, at) for run, _, step, value, at in points(root) if run == many] == [
        (step, float(step), 1_700_000_000_000 + step) for step in range(26_000)
    ]
    rows = [json.loads(path.read_text()) for path in Path(root).glob(f"runs/*/{first.run}/artifacts/*.json")]
    contents = {row["name"]: Store(root).get_blob(row["digest"]) for row in rows}
    assert {name: contents.pop(name) for name in ("a.txt", "deep/er/a.txt")} == {
        "a.txt": b"hello",
        "deep/er/a.txt": b"hello",
    }
    assert list(contents.values()) == [b'{\n  "a": 1\n}']

    assert {row[0] for row in outcomes(run_import(capsys, "mlflow", source, root)).values()} == {"unchanged"}
    for meta in logs.rglob("meta.yaml"):  # MLflow goes on with the copy, and not where it was made
        meta.write_text(meta.read_text().replace(str(mlflow_logs[kind]), str(logs)))
    run_script(python, MORE, logs, source if kind == "server" else STORES[kind])
    running = by_name(root)["running"].run
    report = run_import(capsys, "mlflow", source, root)
    said = report["not_taken"]
    again = outcomes(report)
    assert again.pop(running)[:2] == ("continued", 1 if kind == "server" else 3)
    assert {row[0] for row in again.values()} == {"unchanged"}
    grown = by_name(root)["running"]
    assert (grown.status, len(grown.attempts)) == ("finished", 1)
    values = [(key, value) for run, key, _, value, _ in points(root) if run == running]
    assert (
        said["artifacts that have another size since they were copied: what is copied never changes here"]
        == 1
    )
    if kind == "server":  # which orders by time: that the late value came before the first is seen
        assert values == [("later", 3.0), ("loss", 1.0)]
        assert said["new values of metrics that got values with earlier times since they were copied"] == 2
    else:
        assert values == [("later", 3.0), ("loss", 1.0), ("loss", 0.5), ("loss", 0.25)]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "ftp://somewhere",
            "give a server (http://host:5000), a database (sqlite:///mlflow.db) or a folder (./mlruns)",
        ),
        ("postgresql://user:secret@host/db", "start MLflow's server on it"),
        ("sqlite:///missing.db", "there is no file 'missing.db'"),
        ("./missing", "no experiment is in that folder (*/meta.yaml)"),
        ("http://127.0.0.1:1", "does not answer"),
        ("http://user:secret@[::1", "is not accepted: Invalid IPv6 URL"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_with_what_is_accepted(
    source: str, said: str, root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "mlflow", source, "--root", root]) == 1
    message = capsys.readouterr().err
    assert said in message
    assert "secret" not in message


RUN = {
    "run_id": "a" * 32,
    "status": "FINISHED",
    "start_time": 1_700_000_000_000_000_000,
    "artifact_uri": "mlflow-artifacts:/1/a/artifacts",
}


@contextmanager
def breaking(*, after: str) -> Iterator[str]:
    """The address of a server of one run, whose connection ends within the answer to one path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pages: dict[str, Any] = {
                "/api/2.0/mlflow/artifacts/list": {"files": [{"path": "model.bin", "file_size": 1_000}]},
                "/get-artifact": "x" * 1_000,
                "/api/2.0/mlflow/experiments/search": {
                    "experiments": [{"experiment_id": "1", "name": "one"}]
                },
                "/api/2.0/mlflow/runs/search": {"runs": [{"info": RUN}]},
            }
            path = self.path.partition("?")[0]
            deleted = b"DELETED_ONLY" in self.rfile.read(int(self.headers.get("Content-Length", 0)))
            page = {} if deleted else pages.get(path, {})
            body = page.encode() if isinstance(page, str) else json.dumps(page).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: 5 if path == after and not deleted else None])

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_an_artifact_that_breaks_off_is_refused_and_comes_with_the_next_import(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with breaking(after="/get-artifact") as address:
        report = run_import(capsys, "mlflow", address, root, status=1)
    assert "broke off in 'model.bin', after 5 of 1000 bytes" in json.dumps(report)
    with breaking(after="nowhere") as address:
        later = run_import(capsys, "mlflow", address, root)
    assert [outcome[3] for outcome in outcomes(later).values()] == [1]
    assert Store(root).get_blob(digest_of(b"x" * 1_000))


def test_an_answer_that_breaks_off_is_one_clear_error(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    with breaking(after="/api/2.0/mlflow/runs/search") as address:
        assert main(["import", "mlflow", address, "--root", root]) == 1
    assert "does not answer" in capsys.readouterr().err


@contextmanager
def answering(pages: dict[str, Any]) -> Iterator[str]:
    """The address of a server that knows these paths alone, each with its answers by page token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
            token = (parse_qs(query).get("page_token") or [body.get("page_token", "")])[0]
            deleted = body.get("view_type") == "DELETED_ONLY"
            page = pages[path][token] if path in pages and not deleted else {}
            content = json.dumps(page).encode()
            self.send_response(200 if path in pages else 404)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_traces_are_counted_of_servers_of_each_version_that_has_them() -> None:
    two_pages = {"": {"traces": [{}, {}], "next_page_token": "more"}, "more": {"traces": [{}]}}
    pages = {
        "/api/2.0/mlflow/experiments/search": {"": {"experiments": [{"experiment_id": "1", "name": "one"}]}},
        "/api/2.0/mlflow/runs/search": {"": {}},
    }
    for traces, count in (
        ("/api/3.0/mlflow/traces/search", 3),
        ("/api/2.0/mlflow/traces", 3),
        ("/nowhere", None),
    ):
        with answering({**pages, traces: two_pages}) as address:
            assert Server(address).left_out().get("traces") == count, traces


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"no database" * 100)
    with pytest.raises(OSError, match="is not a database of MLflow's that can be read"):
        list(read_runs(f"sqlite:///{tmp_path / 'mlflow.db'}", None, Skipped()))


def write_folder(top: Path) -> None:
    """A folder as MLflow writes it: an experiment with two runs, and one with one."""
    for experiment, runs in (("1", "ab"), ("2", "c")):
        for run in runs:
            folder = top / experiment / run
            for part in ("metrics", "params", "tags", "artifacts"):
                (folder / part).mkdir(parents=True)
            (folder / "meta.yaml").write_text(
                f"end_time: 1700000009000\nlifecycle_stage: active\nrun_id: {run}\nstart_time: "
                "1700000000000\nstatus: 3\nuser_id: me\n"
            )
            (folder / "params" / "lr").write_text("0.1")
            (folder / "metrics" / "loss").write_text("1700000001000 0.5 1\n")
            (folder / "artifacts" / "a.txt").write_text("hello")
        (top / experiment / "meta.yaml").write_text(
            f"experiment_id: '{experiment}'\nlifecycle_stage: active\nname: of {experiment}\n"
        )


def test_params_are_numbers_and_flags_also_of_runs_once_imported_with_texts(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "mlruns")
    texts = {
        "lr": "1E-4",
        "amp": "true",
        "name": "007",
        "share": "0.10",
        "huge": "1e400",
        "id": "9007199254740993",
    }
    for name, text in texts.items():
        (tmp_path / "mlruns" / "1" / "a" / "params" / name).write_text(text)
    run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root)
    values = {"lr": 1e-4, "amp": True, "name": "007", "share": 0.1, "huge": "1e400", "id": 9007199254740993}
    store = Store(root)
    assert read_run(store, "of-1", "a").params == values
    record = json.loads(store.read("runs/project=of-1/a/record.json"))
    Path(root, "runs/project=of-1/a/record.json").write_text(
        json.dumps(record | {"params": values | {"lr": "1E-4", "amp": "true"}})
    )
    assert read_run(store, "of-1", "a").params == values
    assert "later changes" not in json.dumps(run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root))


def test_texts_of_a_folder_keep_the_ends_of_their_lines(tmp_path: Path) -> None:
    write_folder(tmp_path)
    texts = {"unix": "a\nb\n", "windows": "a\r\nb", "old": "a\rb", "apart": "a\u2028b"}
    for kind, name in ((kind, name) for kind in ("params", "tags") for name in texts):
        (tmp_path / "1" / "a" / kind / name).write_bytes(texts[name].encode())
    first = next(iter(Folder(tmp_path).runs(Experiment("1", "of 1"))))
    assert isinstance(first, MlflowRun)
    assert (first.tags, first.params) == (texts, {"lr": "0.1", **texts})


def test_a_tag_with_the_name_of_another_fact_is_counted(
    root: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_folder(tmp_path / "mlruns")
    of_facts = {"mlflow.runName": "first", "mlflow.note.content": "of MLflow", "mlflow.user": "ada"}
    for name, text in {
        **of_facts,
        "name": "mine",
        "notes": "mine",
        "zeros": "mine",
        "source": "mine",
    }.items():
        (tmp_path / "mlruns" / "1" / "a" / "tags" / name).write_text(text)
    report = run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root)
    assert read_run(Store(root), "of-1", "a").tags == {
        "name": "first",
        "notes": "of MLflow",
        "user": "ada",
        "zeros": "mine",
        "source": "mine",
    }
    assert report["not_taken"] == {"tags with the name of another fact of the run (name, notes, user, …)": 2}
    assert run_import(capsys, "mlflow", str(tmp_path / "mlruns"), root)["taken"] == {}


def test_models_of_a_folder_are_counted_as_they_were_logged_registered_and_used(tmp_path: Path) -> None:
    write_folder(tmp_path)
    sources = {
        "1/a/inputs/data": "DATASET",
        "1/a/inputs/model": "MODEL",
        "1/models/m-1": "",
        "1/models/m-2": "",
    }
    for place, source in sources.items():
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "meta.yaml").write_text(f"source_type: {source}\n")
    (tmp_path / "models" / "models" / "version-1").mkdir(parents=True)
    for place in ("models/models", "models/models/version-1"):
        (tmp_path / place / "meta.yaml").write_text("name: models\n")
    assert Folder(tmp_path).left_out() == {
        "registered models": 1,
        "logged models": 2,
        "datasets that runs used": 1,
    }
    assert [
        run.id for run in Folder(tmp_path).runs(Experiment("1", "of 1")) if isinstance(run, MlflowRun)
    ] == ["a", "b"]


FAULTS = {
    "a folder of params that is a file": ("1/a/params", b"", "1/a/params cannot be read: Not a directory"),
    "metrics that are a file": ("1/a/metrics", b"", "1/a/metrics cannot be read: Not a directory"),
    "a half-written run": (
        "1/a/meta.yaml",
        b"run_id: a\nstat",
        "1/a/meta.yaml cannot be read: its last line has no end, or not yet",
    ),
    "a run cut in a number": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nrun_id: a\nstatus: 3\nstart_time: 17",
        "has no end, or not yet",
    ),
    "a run cut behind a line": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nrun_id: a\nstatus: 3\n",
        "it has no start_time",
    ),
    "a status that is no number": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nrun_id: a\nstart_time: 1\nstatus: x\n",
        "1/a/meta.yaml cannot be read: invalid literal for int() with base 10: 'x'",
    ),
    "a run without an id": (
        "1/a/meta.yaml",
        b"lifecycle_stage: active\nstart_time: 1\nstatus: 3\n",
        "1/a/meta.yaml cannot be read: it has no",
    ),
    "bytes that are no text": (
        "1/a/meta.yaml",
        b"\xff",
        "1/a/meta.yaml cannot be read: 'utf-8' codec can't decode",
    ),
    "a value that is no number": (
        "1/a/metrics/loss",
        b"1 abc 1\n",
        "1/a/metrics/loss cannot be read: could not convert string to float",
    ),
    "an empty experiment": (
        "1/meta.yaml",
        b"",
        "1/meta.yaml cannot be read: it has no lifecycle_stage, name",
    ),
    "a half-written experiment": (
        "1/meta.yaml",
        b"experiment_id: '1'\nlifecycle_stage: active\nname: o",
        "1/meta.yaml cannot be read: its last line has no end, or not yet",
    ),
    "a file of a param that may not be read": (
        "1/a/params/lr",
        None,
        "1/a/params/lr cannot be read: Permission denied",
    ),
    "a folder of params that may not be listed": (
        "1/a/params",
        None,
        "1/a/params cannot be read: Permission denied",
    ),
    "artifacts that may not be listed": (
        "1/a/artifacts",
        None,
        "1/a/artifacts cannot be read: Permission denied",
    ),
    "a run that may not be looked into": ("1/a", None, "1/a/meta.yaml cannot be read: Permission denied"),
    "an experiment that may not be looked into": ("1", None, "1/meta.yaml cannot be read: Permission denied"),
}


@pytest.mark.parametrize("fault", list(FAULTS))
def test_what_cannot_be_read_in_a_folder_is_reported_and_imported_later(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    place, content, said = FAULTS[fault]
    top = tmp_path / "my runs"
    write_folder(top)
    if content is None:
        with deny_access(top / place):
            report = run_import(capsys, "mlflow", top, root, status=1)
    else:
        (top / place).rename(tmp_path / "whole")
        (top / place).write_bytes(content)
        report = run_import(capsys, "mlflow", top, root, status=1)
        (top / place).unlink()
        (tmp_path / "whole").rename(top / place)
    (error,) = [row["error"] for row in report["runs"] if row["outcome"] == "failed"]
    assert said in error
    others = {"c"} if place.count("/") == 0 or place == "1/meta.yaml" else {"b", "c"}
    assert {row["name"] for row in report["runs"] if row["outcome"] == "new"} == others
    again = outcomes(run_import(capsys, "mlflow", top.as_uri(), root))  # my%20runs
    assert {run for run, counts in again.items() if counts[0] == "unchanged"} == others
    whole = {
        info.run: (info.project, info.params, info.status, info.started) for info in list_runs(Store(root))
    }
    started = list_runs(Store(root))[0].started
    assert whole == {run: (f"of-{1 + (run == 'c')}", {"lr": 0.1}, "finished", started) for run in "abc"}
    assert sorted((run, value) for run, _, _, value, _ in points(root)) == [(run, 0.5) for run in "abc"]


@pytest.mark.parametrize(
    "name", ["many words " * 20, "a: b # 'c' \"d\"", "two\nlines", "größe 007", "null", "1e3", "x" * 300]
)
def test_names_are_read_as_mlflow_writes_them(tmp_path: Path, name: str) -> None:
    write_folder(tmp_path)
    meta = yaml.safe_load((tmp_path / "1" / "meta.yaml").read_text()) | {"name": name}
    (tmp_path / "1" / "meta.yaml").write_text(yaml.dump(meta, default_flow_style=False, allow_unicode=True))
    assert Folder(tmp_path).experiments()[0] == Experiment("1", name)


def test_without_pyyaml_a_folder_is_refused_with_what_to_install(
    tmp_path: Path, root: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_folder(tmp_path / "mlruns")
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert main(["import", "mlflow", str(tmp_path / "mlruns"), "--root", root]) == 1
    assert "pip install 'halving[mlflow]'" in capsys.readouterr().err
