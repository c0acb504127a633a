"""Sharded checkpoints over HTTP: downloaded as one file for torch, saved and restored by runs."""

import contextlib
import io
import secrets
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi.testclient import TestClient

from halving import Store
from halving.checkpoints.restoring import restore
from halving.checkpoints.sharded.manifest import Manifest
from halving.checkpoints.sharded.save import Staging
from halving.distributed.ranks import ALONE
from halving.records.run_record import RunRecords, SavedCheckpoint
from halving.store.deadline import Deadline
from halving.store.server_store import ServerStore
from resources.backend import Backend
from resources.sweep_spec import parse_spec
from server.settings import Settings
from tests.backends import SMALL
from tests.s3 import S3
from tests.server.clients import client_of
from tests.server.processes import server_of
from tests.server.registry import promote_winner

WEIGHTS = torch.arange(200_000).reshape(400, 500).float()


def save_checkpoint(store: Store, value: float = 1.0) -> str:
    """A sharded checkpoint: a tensor that is a blob of its own, and one among others."""
    save = Staging(store, ALONE).begin({"weights": WEIGHTS * value, "small": torch.ones(3)}, Deadline())
    save.join()
    assert save.digest is not None, save.error
    return save.digest


def assert_loads(content: bytes) -> None:
    assert torch.equal(torch.load(io.BytesIO(content), weights_only=True)["weights"], WEIGHTS)


def test_a_champions_checkpoint_is_downloaded_as_one_file_by_our_api_and_by_mlflows(
    local: TestClient, backend: Backend
) -> None:
    manifest = backend.store.get_blob(save_checkpoint(backend.store))
    promote_winner(backend, parse_spec({**SMALL, "max_trials": 1}), checkpoint=manifest)
    assert_loads(local.get(local.get("/api/v1/models/small/champion").json()["url"]).content)
    artifacts = "/api/2.0/mlflow-artifacts/artifacts"
    (listed,) = local.get(artifacts, params={"path": "registered-models/small/1"}).json()["files"]
    answer = local.get(f"{artifacts}/registered-models/small/1/{listed['path']}")
    assert_loads(answer.content)
    assert listed["file_size"] == len(answer.content) == int(answer.headers["Content-Length"])


def test_a_checkpoint_is_downloaded_as_one_file_and_in_parts_by_its_run_alone(
    local: TestClient, backend: Backend
) -> None:
    digest = save_checkpoint(backend.store)
    for run in ("r", "other"):
        RunRecords(backend.store, "p", run).start({}, {}, 1, {"started": "2026-11-20T12:00:00.000+00:00"})
    RunRecords(backend.store, "p", "r").add_checkpoint(SavedCheckpoint(1, 1, digest, {}, sharded=True))
    answer = local.get(f"/api/v1/checkpoints/{digest}", params={"run": "p/r"})
    assert_loads(answer.content)
    assert answer.headers["content-disposition"].startswith("attachment")
    assert "r-1.ckpt" in answer.headers["content-disposition"]
    part = Manifest.parse(backend.store.get_blob(digest)).tensors["weights"].chunks[0].place.blob
    assert local.get(f"/api/v1/blobs/{part}", params={"run": "p/r"}).content == WEIGHTS.numpy().tobytes()
    assert local.get(f"/api/v1/blobs/{part}", params={"run": "p/other"}).status_code == 404
    assert (
        local.get(f"/api/v1/blobs/{backend.store.put_blob(b'secret')}", params={"run": "p/r"}).status_code
        == 404
    )


def test_a_champion_in_parts_on_s3_is_fetched_from_this_server(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    backend = Backend(root=s3.root(secrets.token_hex(6)), catalog_url=f"sqlite:///{tmp_path}/catalog.db")
    promote_winner(
        backend,
        parse_spec({**SMALL, "max_trials": 1}),
        checkpoint=backend.store.get_blob(save_checkpoint(backend.store)),
    )
    with client_of(Settings(root=backend.root, catalog_url=backend.catalog_url)) as client:
        url = client.get("/api/v1/models/small/champion").json()["url"]
        assert url.startswith("/api/v1/signed/")
        assert_loads(client.get(url).content)


@pytest.mark.slow
def test_a_run_by_a_server_saves_sharded_checkpoints_and_restores_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    with (
        server_of(str(tmp_path / "root")) as server,
        contextlib.closing(ServerStore(server.address, run="p/r")) as store,
    ):
        records = RunRecords(store, "p", "r")
        records.start({}, {}, 1, {"started": "2026-11-20T12:00:00.000+00:00"})
        for epoch in (1, 2):
            records.add_checkpoint(SavedCheckpoint(epoch, 1, save_checkpoint(store, epoch), {}, sharded=True))
        for checkpoint in records.checkpoints():
            restored: dict[str, Any] = restore(store, checkpoint.digest, {"weights": None, "small": None})
            assert torch.equal(restored["weights"], WEIGHTS * checkpoint.epoch)
        with urllib.request.urlopen(
            f"{server.address}/api/v1/checkpoints/{save_checkpoint(store)}?run=p/r", timeout=60
        ) as answer:
            assert_loads(answer.read())
