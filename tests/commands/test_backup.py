"""``halving backup``, ``restore`` and ``compact --workers``."""

import json
from pathlib import Path
from typing import Any

import pytest

import halving
from halving.cli.main import main
from halving.metrics.manifest import read_manifest
from halving.store.store import blob_name
from resources.backend import Backend
from resources.catalog import Catalog
from tests.backends import add_version


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for run in "ab":
        opened = halving.init("digits", {"lr": 0.1}, tmp_path / "store", id=run, system_metrics=None)
        opened.log({"loss": 1.0}, step=1)
        opened.finish()
    return tmp_path / "store"


def read_json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_backup_is_made_and_restored_by_commands(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "backups")
    new = tmp_path / "new"
    catalog = Backend(root=str(root)).catalog
    with catalog.write() as session:
        add_version(session, model="small", version="1.0.0", stage="champion", updated=0, number=1)
    assert main(["backup", place, "--root", str(root), "--json"]) == 0
    made = read_json(capsys)
    assert made["copied"] == made["files"] > 4
    assert main(["backup", place, "--root", str(root)]) == 0
    out = capsys.readouterr().out
    assert "0 files, 0 B, were new" in out
    assert f"to restore it: halving restore {place}" in out
    assert main(["restore", place, "--root", str(new), "--backup", made["backup"], "--json"]) == 0
    restored = read_json(capsys)
    assert (restored["files"], restored["problems"]) == (made["files"], [])
    assert halving.resolve("small@champion", root=str(new)).version == "1.0.0"
    assert main(["show", "a", "--root", str(new), "--json"]) == 0
    assert read_json(capsys)["params"] == {"lr": 0.1}
    assert main(["restore", place, "--root", str(new)]) == 1
    assert "is not accepted: it has" in capsys.readouterr().err


def test_old_backups_are_listed_and_go_by_the_number_that_is_kept(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "backups")
    assert main(["backup", place, "--list"]) == 0
    assert capsys.readouterr().out == f"there are no backups in {place}\n"
    assert main(["backup", place, "--root", str(root), "--json"]) == 0
    assert read_json(capsys)["pruned"] is None
    assert main(["backup", place, "--root", str(root), "--keep", "1"]) == 0
    assert (
        "1 older backups went, and 0 files that no other one has, 0 B\nto restore it: "
        in capsys.readouterr().out
    )
    assert main(["backup", place, "--list", "--json"]) == 0
    (left,) = read_json(capsys)["backups"]
    assert left["root"] == str(root)
    assert main(["backup", place, "--list"]) == 0
    assert left["backup"] in capsys.readouterr().out
    for wrong in ("0", "-1", "many"):
        with pytest.raises(SystemExit):
            main(["backup", place, "--root", str(root), f"--keep={wrong}"])
        assert (
            f"argument --keep: '{wrong}' is not accepted: give how many backups to keep, 1 or more"
            in capsys.readouterr().err
        )
    assert main(["backup", place, "--list", "--json"]) == 0
    assert read_json(capsys)["backups"] == [left]


def test_an_incomplete_backup_has_the_status_1_and_deletes_no_older_one(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "backups")
    digest = halving.Store(root).put_blob(b"weights")
    catalog = Backend(root=str(root)).catalog
    with catalog.write() as session:
        add_version(
            session, model="small", version="1.0.0", stage="champion", updated=0, number=1, checkpoint=digest
        )
    command = ["backup", place, "--root", str(root), "--keep", "1"]
    assert main([*command, "--json"]) == 0
    whole = read_json(capsys)
    assert (whole["missing"], whole["of"]) == ([], str(root))
    halving.Store(root).delete(blob_name(digest))
    assert main(command) == 1
    out = capsys.readouterr().out
    assert f"of {root}: " in out
    assert f"the checkpoint of small@1.0.0 ({digest}). No older backup was deleted" in out
    assert main([*command, "--json"]) == 1
    made = read_json(capsys)
    assert (made["missing"], made["pruned"]) == (
        [{"digest": digest, "what": "the checkpoint of small@1.0.0"}],
        None,
    )
    assert main(["backup", place, "--list", "--json"]) == 0
    assert sorted(row["missing"] for row in read_json(capsys)["backups"]) == [0, 1, 1]
    assert main(["restore", place, "--root", str(tmp_path / "new"), "--backup", made["backup"]]) == 0
    out = capsys.readouterr().out
    assert f"backup {made['backup']} of {root} is restored into {tmp_path / 'new'}" in out
    assert "it lacks 1 contents that its catalog names" in out
    assert (
        main(["restore", place, "--root", str(tmp_path / "newer"), "--backup", whole["backup"], "--json"])
        == 0
    )
    restored = read_json(capsys)
    assert (restored["missing"], restored["of"]) == (0, str(root))
    assert halving.Store(tmp_path / "newer").get_blob(digest) == b"weights"


def test_a_restore_whose_catalog_is_another_file_in_the_store(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    assert main(["backup", str(tmp_path / "backups"), "--root", str(root), "--json"]) == 0
    read_json(capsys)
    Catalog(f"sqlite:///{new}/halving.db").close()
    monkeypatch.setenv("HALVING_CATALOG", f"sqlite:///{new}/halving.db")
    assert main(["restore", str(tmp_path / "backups"), "--root", str(new)]) == 0


@pytest.mark.slow
def test_several_processes_compact_the_runs_that_wait(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["compact", "--all", "--root", str(root), "--workers"]
    assert main([*command, "2", "--json"]) == 0
    assert [(row["run"], row["points"], row["error"]) for row in read_json(capsys)["runs"]] == [
        ("a", 1, None),
        ("b", 1, None),
    ]
    assert [read_manifest(halving.Store(root), "digits", run).points for run in "ab"] == [1, 1]
    assert main([*command, "1"]) == 0
    assert "nothing to compact: no run in" in capsys.readouterr().out


def test_a_number_of_workers_that_is_none_and_single_runs_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compact", "--all", "--root", str(root), "--workers", "0"]) == 1
    assert "--workers 0 is not accepted: give 1 to 64" in capsys.readouterr().err
    assert main(["compact", "a", "--root", str(root), "--workers", "2"]) == 1
    assert "--workers is not accepted with single runs" in capsys.readouterr().err
