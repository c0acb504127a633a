"""Versions of W&B's artifacts through a server: its tokens and projects hold for them as for runs."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from resources.backend import Backend
from server.identity.tokens import create_token
from server.settings import Settings
from tests.server.browser.conftest import serving

DIGEST = f"sha256:{'0' * 64}"
VERSION = {
    "number": 0,
    "type": "model",
    "content": "0",
    "manifest": DIGEST,
    "size": 1,
    "run": "r",
    "created": "2026-01-01T00:00:00+00:00",
}


@pytest.fixture
def wandb(backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The module on a server, which asks for tokens."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "journals"))
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB__DISABLE_STATS", "true")
    monkeypatch.setenv("HALVING_TOKEN", create_token(backend.catalog, "ada", scope="write", projects=["p"]))
    with serving(Settings(root=backend.store.root, tokens=True)) as url:
        monkeypatch.setenv("HALVING_URL", url)
        import halving.wandb

        yield halving.wandb
        halving.wandb.teardown()


@pytest.mark.slow
def test_artifacts_are_logged_used_and_named_through_a_server(
    wandb: ModuleType, backend: Backend, tmp_path: Path
) -> None:
    for number, content in enumerate(("first", "second", "first")):
        with wandb.init(project="p", id=f"run-{number}") as run:
            artifact = wandb.Artifact("model", type="model", metadata={"of": content})
            with artifact.new_file("w.txt") as file:
                file.write(content)
            run.log_artifact(artifact, aliases=[content])
            run.save(artifact.manifest.entries["w.txt"].local_path, policy="now")
    with wandb.init(project="p", id="user") as run:
        for name, content in (("model:first", "first"), ("model:v1", "second"), ("model:latest", "second")):
            used = run.use_artifact(name)
            folder = Path(used.download(tmp_path / name.replace(":", "-")))
            assert ((folder / "w.txt").read_text(), used.metadata) == (content, {"of": content})
        used.metadata = {"of": "changed"}
        used.save()
    folder = Path(backend.store.root) / "artifact-versions/project=p/model"
    assert sorted(path.name for path in folder.iterdir()) == [
        "change-000000.json",
        "change-000001.json",
        "change-000002.json",
        "use-000000-user.json",
        "use-000001-user.json",
        "v000000.json",
        "v000001.json",
    ]


def put(client: Any, name: str, record: Any, headers: Any = None) -> int:
    content = record if isinstance(record, str) else json.dumps(record)
    status: int = client.put(f"/api/v1/files/{name}", content=content, headers=headers).status_code
    return status


@pytest.mark.parametrize(
    ("name", "record", "status"),
    [
        ("v000000.json", VERSION, 201),
        ("v000001.json", VERSION, 422),
        ("v000000.json", {**VERSION, "manifest": "sha256:1"}, 422),
        ("v000000.json", {**VERSION, "run": "../r"}, 422),
        ("v000000.json", {**VERSION, "size": -1}, 422),
        ("v000000.json", {**VERSION, "type": 3}, 422),
        ("v000000.json", "no JSON", 422),
        ("change-000000.json", {"version": 0, "aliases": ["best"]}, 201),
        ("change-000000.json", {"version": 0, "aliases": "best"}, 422),
        ("change-000000.json", {"version": 0, "metadata": {"a": "\0"}}, 422),
        ("use-000000-r.json", {"version": 0, "run": "r"}, 201),
        ("record.json", VERSION, 422),
        ("other.json", VERSION, 422),
        ("deep/v000000.json", VERSION, 422),
        ("../r/record.json", VERSION, 422),
    ],
)
def test_only_what_the_module_writes_is_accepted(local: Any, name: str, record: Any, status: int) -> None:
    answer = put(local, f"artifact-versions/project=p/model/{name}", record)
    assert answer == status or (name.startswith("..") and answer in (404, 405))


def test_versions_of_other_projects_are_not_there_and_readers_write_none(guarded: Any, bearer: Any) -> None:
    name = "artifact-versions/project=p/model/v000000.json"
    writer = bearer("ada", scope="write", projects=["p"])
    assert put(guarded, name, VERSION, writer) == 201
    assert put(guarded, name, VERSION) == 401
    assert put(guarded, name, VERSION, bearer("eve", scope="read", projects=["p"])) == 403
    assert put(guarded, name, VERSION, bearer("bob", scope="write", projects=["q"])) in (403, 404)
    for caller, status in ((writer, 200), (bearer("bea", scope="read", projects=["q"]), 404)):
        assert guarded.get(f"/api/v1/files/{name}", headers=caller).status_code == status
        folder = {"folder": "artifact-versions/project=p/model"}
        assert guarded.get("/api/v1/files", params=folder, headers=caller).status_code == status
