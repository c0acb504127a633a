"""Artifacts: versions by name that other runs find, whose files are stored once and stay as long as a run."""

import gc
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from halving import Store
from halving.errors import NotFound
from halving.maintenance.named_blobs import named_by_runs
from halving.wandb.artifact_versions import Collection
from halving.wandb.errors import CommError, NotSupported


def make(wandb: ModuleType, content: str = "weights", name: str = "model", **options: Any) -> Any:
    artifact = wandb.Artifact(name, type="model", **options)
    with artifact.new_file("deep/weights.txt") as file:
        file.write(content)
    return artifact


def log(wandb: ModuleType, *artifacts: Any, run: str | None = None, aliases: Any = None) -> list[Any]:
    with wandb.init(project="p", id=run) as opened:
        return [opened.log_artifact(artifact, aliases=aliases).wait() for artifact in artifacts]


def names_of(store: Store, run: str) -> list[str]:
    """The names of the artifacts in a run's records."""
    folder = Path(store.root) / f"runs/project=p/{run}/artifacts"
    return sorted(json.loads(path.read_text())["name"] for path in folder.glob("*.json"))


def test_versions_count_up_and_equal_content_is_the_same_version(wandb: ModuleType, store: Store) -> None:
    versions = log(wandb, make(wandb), make(wandb, "other"), make(wandb), run="a")
    assert [version.name for version in versions] == ["model:v0", "model:v1", "model:v0"]
    (again,) = log(wandb, make(wandb, "other"), run="b")
    assert (again.version, again.aliases) == ("v1", ["latest"])
    assert names_of(store, "a") == [
        "model:v0.json",
        "model:v0/deep/weights.txt",
        "model:v1.json",
        "model:v1/deep/weights.txt",
    ]


def test_a_later_run_finds_an_earlier_ones_artifact_by_version_and_alias(
    wandb: ModuleType, store: Store, tmp_path: Path
) -> None:
    log(wandb, make(wandb, metadata={"epochs": 3}, description="said"), run="a", aliases=["best"])
    log(wandb, make(wandb, "other"), run="b")
    with wandb.init(project="p", id="c") as run:
        for name, content in (
            ("model:v0", "weights"),
            ("model:best", "weights"),
            ("p/model:best", "weights"),
            ("entity/p/model:v1", "other"),
            ("entity/p!/model:v1", "other"),  # a project whose name is changed to this one
            ("model:latest", "other"),
            ("model", "other"),
        ):
            artifact = run.use_artifact(name, type="model")
            folder = Path(artifact.download(tmp_path / name.replace("/", "-")))
            assert (folder / "deep/weights.txt").read_text() == content
        best = run.use_artifact("model:best")
        assert (best.metadata, best.description, best.aliases) == ({"epochs": 3}, "said", ["best"])
        assert Path(best.get_path("deep/weights.txt").download()).read_text() == "weights"
        assert Path(best.file(str(tmp_path / "one"))).read_text() == "weights"
    assert names_of(store, "c") == ["used/model:v0", "used/model:v1"]
    assert best._stored.collection.users(0) == ["c"]


def test_what_artifacts_name_is_kept_by_the_runs_that_logged_them(wandb: ModuleType, store: Store) -> None:
    (artifact,) = log(wandb, make(wandb), run="a")
    named = {digest for _, records in named_by_runs(store, "p") for row in records for digest in row.digests}
    for digest in (artifact.get_entry("deep/weights.txt").digest, artifact._stored.version.manifest):
        assert bytes.fromhex(digest.removeprefix("sha256:")) in named


def test_an_artifact_of_a_deleted_run_is_gone_and_its_content_becomes_a_new_version(
    wandb: ModuleType, store: Store
) -> None:
    (artifact,) = log(wandb, make(wandb), run="a")
    store.delete(
        f"artifacts/sha256/{artifact._stored.version.manifest[7:9]}/{artifact._stored.version.manifest[7:]}"
    )
    with (
        wandb.init(project="p") as run,
        pytest.raises(CommError, match="run 'a', which logged it, was deleted"),
    ):
        run.use_artifact("model:v0")
    assert log(wandb, make(wandb))[0].version == "v1"


def test_an_alias_moves_and_is_taken_away(wandb: ModuleType) -> None:
    first, second = log(wandb, make(wandb), make(wandb, "other"), aliases="best")
    with wandb.init(project="p") as run:
        assert run.use_artifact("model:best").version == "v1"
        older = run.use_artifact("model:v0")
        older.aliases.append("best")
        older.metadata["note"] = "better"
        older.save()
        assert run.use_artifact("model:best").metadata == {"note": "better"}
        assert run.use_artifact("model:v1").aliases == ["latest"]
        older.aliases.remove("best")
        older.save()
        with pytest.raises(CommError, match="'model:best' not found in project 'p'"):
            run.use_artifact("model:best")
    assert (first.version, second.version) == ("v0", "v1")


def test_files_are_as_they_were_when_they_were_added(wandb: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("before")
    artifact = wandb.Artifact("data", type="dataset")
    artifact.add_file(path)
    artifact.add_file(str(path), name="kept.txt", policy="immutable")
    path.write_text("after")
    with wandb.init(project="p") as run:
        with pytest.raises(ValueError, match=r"data.txt has changed since it was added as 'kept.txt'"):
            run.log_artifact(artifact)
        artifact.remove("kept.txt")
        run.log_artifact(artifact)
        assert Path(run.use_artifact("data:v0").file(str(tmp_path / "out"))).read_text() == "before"


def test_folders_paths_and_references_are_artifacts(wandb: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "deep/b.txt").write_text("b")
    artifact = wandb.Artifact("data", type="dataset")
    artifact.add_dir(folder, name="all")
    artifact.add_reference("s3://bucket/data.csv")
    artifact.add_reference(folder.as_uri(), name="linked")
    with wandb.init(project="p", id="r") as run:
        run.log_artifact(artifact)
        assert run.log_artifact(str(folder), type="dataset").name == "run-r-data:v0"
        assert run.log_artifact(folder / "a.txt", name="one", type="dataset").name == "one:v0"
        with pytest.raises(ValueError, match=r"path 'nowhere' is not accepted"):
            run.log_artifact("nowhere")
        used = run.use_artifact("data:latest")
    assert sorted(used.manifest.entries) == [
        "all/a.txt",
        "all/deep/b.txt",
        "data.csv",
        "linked/a.txt",
        "linked/deep/b.txt",
    ]
    assert used.get_entry("data.csv").ref_target() == "s3://bucket/data.csv"
    with pytest.raises(ValueError, match=r"s3://bucket/data.csv is not on this machine"):
        used.download(tmp_path / "out")
    out = Path(used.download(tmp_path / "out", allow_missing_references=True))
    assert (out / "linked/deep/b.txt").read_text() == "b"
    assert not (out / "data.csv").exists()


def test_folders_that_a_folder_links_to_are_added_and_never_checked_out(
    wandb: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/a.txt").write_text("a")
    folder = tmp_path / "data"
    (folder / "deep").mkdir(parents=True)
    (folder / "linked").symlink_to("../real")
    (folder / "deep/around").symlink_to("..")
    (folder / "b.txt").write_text("b")
    artifact = wandb.Artifact("data", type="dataset")
    artifact.add_dir(folder)
    assert sorted(artifact.manifest.entries) == ["b.txt", "linked/a.txt"]
    (logged,) = log(wandb, make(wandb))
    logged.checkout(str(folder))
    assert not (folder / "b.txt").exists()
    assert (tmp_path / "real/a.txt").read_text() == "a", "what a folder links to is not deleted"


@pytest.mark.slow
def test_a_forked_child_that_ends_takes_no_copies_with_it(wandb: ModuleType) -> None:
    artifact = make(wandb)
    child = os.fork()
    if child == 0:
        del artifact
        gc.collect()
        os._exit(0)
    os.waitpid(child, 0)
    (logged,) = log(wandb, artifact)
    assert logged.version == "v0"


def test_a_copy_that_a_full_disk_cut_off_is_no_files_content(
    wandb: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("whole")
    artifact = wandb.Artifact("data", type="dataset")

    def fill(source: Path, target: Path) -> None:
        target.write_text("wh")
        raise OSError("no space left on device")

    with monkeypatch.context() as full:
        full.setattr("halving.wandb.artifact_draft.shutil.copyfile", fill)
        with pytest.raises(OSError, match="no space left"):
            artifact.add_file(tmp_path / "a.txt")
    artifact.add_file(tmp_path / "a.txt")
    (logged,) = log(wandb, artifact)
    assert Path(logged.file(str(tmp_path / "out"))).read_text() == "whole"


def test_tables_and_pictures_come_back_by_their_names(wandb: ModuleType) -> None:
    artifact = wandb.Artifact("results", type="table")
    artifact.add(wandb.Table(columns=["a", "b"], data=[[1, "x"], [2, "y"]]), "scores")
    artifact["picture"] = wandb.Image(np.zeros((3, 4), np.uint8))
    with wandb.init(project="p") as run:
        run.log_artifact(artifact)
        used = run.use_artifact("results:latest")
        table = used.get("scores")
        assert (table.columns, table.data) == (["a", "b"], [[1, "x"], [2, "y"]])
        assert used["picture"]._width == 4
        assert used.get("other") is None


def test_a_download_is_checked_out_and_verified(wandb: ModuleType, tmp_path: Path) -> None:
    (artifact,) = log(wandb, make(wandb))
    folder = Path(artifact.checkout(str(tmp_path / "out")))
    artifact.verify(str(folder))
    (folder / "extra").write_text("")
    with pytest.raises(ValueError, match="extra which is not a member of artifact model:v0"):
        artifact.verify(str(folder))
    artifact.checkout(str(folder))
    (folder / "deep/weights.txt").write_text("changed")
    with pytest.raises(ValueError, match="Digest mismatch"):
        artifact.verify(str(folder))
    artifact.download(folder)
    artifact.verify(str(folder))


def test_what_is_logged_does_not_change(wandb: ModuleType) -> None:
    (artifact,) = log(wandb, make(wandb))
    with pytest.raises(ValueError, match="Can't add to finalized artifact 'model'"):
        artifact.new_file("b").__enter__()
    assert (artifact.state, artifact.size, artifact.file_count) == ("COMMITTED", 7, 1)
    assert artifact.digest == make(wandb).digest


def test_a_disabled_run_takes_artifacts_and_stores_nothing(wandb: ModuleType, tmp_path: Path) -> None:
    with wandb.init(project="p", mode="disabled") as run:
        artifact = run.log_artifact(make(wandb)).wait()
        assert artifact.version == "v0"
        assert run.use_artifact("data:latest").download(tmp_path / "out") == str(tmp_path / "out")
        assert run.save("nothing") == []


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda w, run: w.Artifact("a b", type="x"), ValueError, "name 'a b' is not accepted"),
        (lambda w, run: w.Artifact("a", type="x", incremental=True), NotSupported, "add all files"),
        (lambda w, run: w.Artifact("a", type="x", metadata=[1]), TypeError, "metadata must be dict"),
        (lambda w, run: w.Artifact("a", type="x").add_file("nowhere"), ValueError, "not a file: 'nowhere'"),
        (lambda w, run: w.Artifact("a", type="x").wait(), ValueError, "not logged yet"),
        (lambda w, run: w.Artifact("a", type="x").add_reference("a.txt"), ValueError, "must be URIs"),
        (lambda w, run: w.Artifact("a", type="x").get_path("b"), KeyError, "Path not contained"),
        (lambda w, run: run.use_artifact("none:v3"), CommError, "'none:v3' not found in project 'p'"),
        (lambda w, run: run.use_artifact("model", type="data"), ValueError, "Supplied type data"),
        (
            lambda w, run: run.log_artifact(w.Artifact("model", type="data")),
            ValueError,
            "exists with type 'model'",
        ),
        (lambda w, run: run.log_artifact(make(w), aliases=["v3"]), ValueError, "alias 'v3'"),
        (lambda w, run: run.log_artifact(make(w), aliases=["a/b"]), ValueError, "must not contain"),
        (lambda w, run: make(w).link("registry/x"), NotSupported, "give the artifact an alias"),
    ],
)
def test_what_is_not_accepted_is_refused_with_what_is(
    wandb: ModuleType, act: Any, error: Any, said: str
) -> None:
    log(wandb, make(wandb))
    with wandb.init(project="p") as run, pytest.raises(error, match=said):
        act(wandb, run)


def test_a_path_that_leads_out_of_an_artifact_is_not_accepted(wandb: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    for name in ("../out", "/out", "a/../../out", "a//b"):
        with pytest.raises(ValueError, match="give a relative path"):
            wandb.Artifact("a", type="x").add_file(tmp_path / "f", name=name)


# Saved files


def test_files_saved_live_are_stored_as_they_are_at_the_end(
    wandb: ModuleType, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/a.txt").write_text("before")
    (tmp_path / "now.txt").write_text("first")
    with wandb.init(project="p", id="r") as run:
        assert run.save("out/*.txt") == [str(tmp_path / "out/a.txt")]
        run.save("now.txt", policy="now")
        (tmp_path / "now.txt").write_text("second")
        run.save("now.txt", policy="now")
        run.save(str(tmp_path / "out/a.txt"), base_path=str(tmp_path / "out"), policy="end")
        (tmp_path / "out/a.txt").write_text("after")
        (tmp_path / "out/b.txt").write_text("new")
        with pytest.raises(ValueError, match="policy 'later' is not accepted"):
            run.save("out/a.txt", policy="later")
        with pytest.raises(ValueError, match="is not below base_path"):
            run.save("../x", base_path="out")
    assert names_of(store, "r") == ["a.txt", "now.txt", "now.txt@2", "out/a.txt", "out/b.txt"]
    folder = Path(store.root) / "runs/project=p/r/artifacts"
    rows = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    contents = {row["name"]: store.get_blob(row["digest"]) for row in rows}
    assert contents == {
        "a.txt": b"after",
        "now.txt": b"first",
        "now.txt@2": b"second",
        "out/a.txt": b"after",
        "out/b.txt": b"new",
    }


def test_a_missing_blob_is_an_error_of_the_file(wandb: ModuleType, store: Store, tmp_path: Path) -> None:
    (artifact,) = log(wandb, make(wandb))
    digest = artifact.get_entry("deep/weights.txt").digest
    store.delete(f"artifacts/sha256/{digest[7:9]}/{digest[7:]}")
    with pytest.raises(NotFound):
        artifact.download(tmp_path / "out")
    assert not (tmp_path / "out/deep/weights.txt").exists()


def test_processes_that_log_at_once_never_share_a_number(store: Store) -> None:
    def add(number: int) -> int:
        collection = Collection(Store(store.root), "p", "model")
        return collection.add("model", str(number), f"sha256:{number:064d}", 1, f"r{number}").number

    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(add, range(40)))
    assert sorted(numbers) == list(range(40))
    versions = Collection(store, "p", "model").versions()
    assert [version.content for version in versions] == [str(numbers.index(n)) for n in range(40)]
