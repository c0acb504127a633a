"""What MLflow's servers answer, and sources that are none."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from halving.cli.main import main
from halving.imports.foreign_run import Skipped
from halving.imports.mlflow_server import Server
from halving.imports.mlflow_tracking import read_runs
from halving.store.store import Store, digest_of
from tests.sdk.imports.copies import outcomes, run_import


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


class QuietHandler(BaseHTTPRequestHandler):
    """Answers a POST as a GET, and logs nothing."""

    def do_GET(self) -> None:
        raise NotImplementedError

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextmanager
def serve(handler: type[QuietHandler]) -> Iterator[str]:
    """The address of a server on this machine that answers by a handler."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@contextmanager
def breaking(*, after: str) -> Iterator[str]:
    """The address of a server of one run, whose connection ends within the answer to one path."""

    class Handler(QuietHandler):
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

    with serve(Handler) as address:
        yield address


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

    class Handler(QuietHandler):
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

    with serve(Handler) as address:
        yield address


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
