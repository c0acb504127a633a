"""``halving datasets``: its output is true, its refusals say why, and its status is for scripts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Dataset
from halving.cli.main import main
from halving.data.shards import shards_of
from resources.backend import Backend
from resources.datasets.snapshot_catalog import Snapshot
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.trainables import data

Command = Callable[..., tuple[int, str, str]]
_SPEC = {"name": "points", "source": "tests.trainables:data", "target": "label"}


@pytest.fixture
def command(backend: Backend, capsys: pytest.CaptureFixture[str]) -> Command:
    """``halving datasets …`` on the store: its status, output and errors."""

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["datasets", *arguments, "--root", backend.store.root])
        out, err = capsys.readouterr()
        return status, " ".join(out.split()), err

    return run


@pytest.fixture
def snapshot(backend: Backend) -> Snapshot:
    return take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(_SPEC))


def test_a_store_without_snapshots_says_how_to_get_one(command: Command) -> None:
    assert command("list")[:2] == (
        0,
        "there is no snapshot yet; a sweep takes one, as in halving sweep sweeps/digits.yaml",
    )
    assert command("list", "digits")[1].startswith("there is no snapshot of digits yet")
    status, _, err = command("show", "digits@12")
    assert status == 1
    assert "no dataset snapshot 'digits@12'" in err


def test_snapshots_are_listed_and_shown_with_what_they_hold(command: Command, snapshot: Snapshot) -> None:
    assert f"{snapshot.key} 90 " in command("list")[1]
    assert json.loads(command("list", "points", "--json")[1])[0]["digest"] == snapshot.digest
    text = command("show", snapshot.key[:12])[1]
    for said in (
        "90 rows",
        "target label",
        "source: function tests.trainables:data",
        "classes: high 44, low 46",
        "x double 0 0 ",
    ):
        assert said in text
    manifest = json.loads(command("show", snapshot.digest, "--json")[1])
    assert manifest["splits"] == snapshot.splits
    assert manifest["deviation"] == {"rows": 0.0, "bytes": 0.0}


def test_the_deviation_of_shards_from_their_splits_mean_is_shown(
    command: Command, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each split has several shards, of rows of 100 to 1,000 bytes."""
    lengths = np.random.default_rng(0).integers(100, 1_000, 40_000)
    table = pa.table({"x": ["x" * length for length in lengths], "label": lengths % 2})
    monkeypatch.setattr("tests.trainables.data", lambda: table)
    snapshot = take_snapshot(
        backend.store, backend.catalog, DatasetSource.model_validate({**_SPEC, "shard_mib": 1})
    )
    manifest = json.loads(command("show", snapshot.digest, "--json")[1])
    assert min(len(shards) for shards in manifest["shards"].values()) >= 2
    deviation = manifest["deviation"]
    assert 0 < deviation["bytes"] < deviation["rows"] <= 0.05
    assert (
        f"{deviation['rows']:.1%} in rows, {deviation['bytes']:.1%} in bytes"
        in command("show", snapshot.digest)[1]
    )


def test_a_diff_names_what_changed(
    command: Command, snapshot: Snapshot, backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = pa.concat_tables([data(), pa.table({"x": [2.0, 3.0], "label": ["high", "low"]})])
    monkeypatch.setattr("tests.trainables.data", lambda: grown)
    new = take_snapshot(backend.store, backend.catalog, DatasetSource.model_validate(_SPEC))
    diff: dict[str, Any] = json.loads(command("diff", snapshot.key, new.key, "--json")[1])
    assert sum(diff["rows"]["added"].values()) == 2
    assert diff["rows"]["moved"] == []
    said = command("diff", snapshot.key, new.key)[1]
    for line in (
        "no row moved from one split to another",
        "x: max 0.98",
        "→ 3.0",
        "classes high 44, low 46 → high 45, low 47",
    ):
        assert line in said


def test_a_snapshot_is_deprecated_with_a_reason_and_back(command: Command, snapshot: Snapshot) -> None:
    status, said, _ = command("deprecate", snapshot.key, "--reason", "labels of May are wrong")
    assert (status, said) == (
        0,
        f"{snapshot.key} is deprecated: nothing is launched on it any more; runs that used it keep it",
    )
    assert "labels of May are wrong" in command("list")[1]
    assert "deprecated: labels of May are wrong" in command("show", snapshot.key)[1]
    assert command("deprecate", snapshot.key, "--undo")[1] == f"{snapshot.key} may be used again"
    assert json.loads(command("list", "--json")[1])[0]["deprecated"] is None
    status, _, err = command("deprecate", snapshot.key, "--reason", " ")
    assert status == 1
    assert "--reason = '' is not accepted: say why" in err


def test_damage_is_a_status_that_a_script_sees_and_is_fetched_from_another_store(
    command: Command, snapshot: Snapshot, backend: Backend, tmp_path: Path
) -> None:
    assert command("verify", snapshot.key)[:2] == (
        0,
        f"{snapshot.key}: all 3 shards are as their digests say",
    )
    shard = shards_of(Dataset(backend.store, "points", snapshot.digest).manifest, "test")[0]
    path = Path(backend.store.path(shard.name))
    other = tmp_path / "other" / shard.name
    other.parent.mkdir(parents=True)
    path.rename(other)
    status, said, _ = command("verify", snapshot.key)
    assert status == 1
    assert f"missing: {shard.name} of the split test" in said
    assert f"halving datasets fetch {snapshot.key} --from STORE brings them back" in said
    assert json.loads(command("verify", snapshot.key, "--json")[1])["faults"] == [
        {"split": "test", "shard": shard.name, "what": "missing"}
    ]
    status, _, err = command("fetch", snapshot.key)
    assert status == 1
    assert "--from is missing: give the store that has the shards, or set HALVING_DVC_REMOTE" in err
    status, said, _ = command("fetch", snapshot.key, "--from", str(tmp_path / "other"))
    assert (status, said.partition(",")[0]) == (0, f"{snapshot.key}: 1 of 3 shards were fetched")
    assert command("verify", snapshot.key)[0] == 0


def test_a_file_that_a_snapshot_refers_to_is_verified_too(
    command: Command, backend: Backend, tmp_path: Path
) -> None:
    (tmp_path / "raw").mkdir()
    for number in range(60):
        (tmp_path / "raw" / f"{number}.txt").write_text(str(number))
    source = {"folder": str(tmp_path / "raw"), "reference": "digest"}
    taken = take_snapshot(
        backend.store, backend.catalog, DatasetSource.model_validate({**_SPEC, "source": source})
    )
    said = (
        f"{taken.key}: all 3 shards are as their digests say {taken.key}: all 60 files that it refers to "
        "are as they were"
    )
    assert command("verify", taken.key)[:2] == (0, said)
    (tmp_path / "raw" / "7.txt").write_text("8")
    status, said, _ = command("verify", taken.key)
    assert status == 1
    assert f"{tmp_path}/raw/7.txt is not any more what the snapshot refers to: its sha256 is" in said
    assert f"{taken.key}: 1 of 60 files are not any more what it refers to" in said
    data = json.loads(command("verify", taken.key, "--json")[1])
    assert (data["faults"], data["files"], [file["location"] for file in data["changed"]]) == (
        [],
        60,
        [f"{tmp_path}/raw/7.txt"],
    )
