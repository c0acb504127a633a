"""A winner whose record lacks changed code is held back; what else it lacks is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import halving
from halving import Store
from halving.data.shards import shards_of
from halving.data.snapshot import snapshot_folder
from resources.backend import Backend
from resources.datasets.snapshot_catalog import Snapshot
from resources.datasets.snapshots import take_snapshot
from resources.registry.gates.lineage import judge_lineage
from resources.sweep_spec import parse_spec
from tests.backends import SMALL

Recorded = Callable[..., dict[str, Any]]


@pytest.fixture
def store(backend: Backend) -> Store:
    return backend.store


@pytest.fixture
def snapshot(backend: Backend) -> Snapshot:
    return take_snapshot(backend.store, backend.catalog, parse_spec(SMALL).dataset)


@pytest.fixture
def record_winner(store: Store, snapshot: Snapshot) -> Recorded:
    """The report of a winner whose run was recorded, with changes of what git said of the checkout."""

    def record(**git: Any) -> dict[str, Any]:
        with halving.init("digits", {"x": 1}, store.root) as run:
            checkpoint = run.save(w=1)
        (path,) = Path(store.root).rglob("record.json")
        content = json.loads(path.read_text())
        content["provenance"]["git"] = {
            "commit": "0" * 40,
            "dirty": True,
            "patch": None,
            "left_out": [],
            "left_out_count": 0,
            **git,
        }
        content["parent"]["snapshot"] = snapshot.digest
        path.write_text(json.dumps(content))
        winner = {"key": run.id, "params": {"x": 1}, "checkpoint": checkpoint}
        return {
            "name": "digits",
            "winner": winner,
            "snapshot": {"key": snapshot.key, "digest": snapshot.digest},
        }

    return record


def test_a_record_with_all_of_the_code_passes(store: Store, record_winner: Recorded) -> None:
    verdict = judge_lineage(store, record_winner())
    assert (verdict.outcome, verdict.reason) == (
        "pass",
        "run record, code as it was recorded, checkpoint and snapshot are all there",
    )


@pytest.mark.parametrize(
    "path", ["models/large.py", "analysis.ipynb", "sweeps/digits.yaml", "libraries/mine/"]
)
def test_changed_code_that_was_not_recorded_holds_the_winner_back(
    store: Store, record_winner: Recorded, path: str
) -> None:
    left_out = [{"path": path, "bytes": 20_000_000}, {"path": "rows.csv", "bytes": 30_000_000}]
    verdict = judge_lineage(store, record_winner(left_out=left_out, left_out_count=2))
    assert verdict.outcome == "fail"
    assert f"missing: code: {path}" in verdict.reason
    assert "rows.csv" not in verdict.reason
    assert "commit what the training needs" in verdict.reason


def test_unrecorded_other_files_and_lines_with_secrets_are_named_in_a_pass(
    store: Store, record_winner: Recorded
) -> None:
    left_out = [{"path": f"rows-{number}.csv", "bytes": 30_000_000} for number in range(7)]
    left_out = [{"path": "credentials.yaml", "bytes": 90}, *left_out]
    verdict = judge_lineage(store, record_winner(left_out=left_out, left_out_count=8, patch_redacted=2))
    assert verdict.outcome == "pass"
    assert (
        "; not recorded: credentials.yaml (90 B), rows-0.csv (28.6 MiB), rows-1.csv (28.6 MiB), "
        in verdict.reason
    )
    assert verdict.reason.endswith(" and 3 more, 2 changed lines, since each holds a secret")


def test_more_files_than_a_record_names_hold_the_winner_back(store: Store, record_winner: Recorded) -> None:
    left_out = [{"path": f"rows-{number}.csv", "bytes": 30_000_000} for number in range(100)]
    verdict = judge_lineage(store, record_winner(left_out=left_out, left_out_count=103))
    assert verdict.outcome == "fail"
    assert (
        "code: 3 more files were not recorded, too many to be named; commit them, or let git ignore them"
        in verdict.reason
    )


@pytest.mark.folder
def test_a_snapshot_of_which_something_is_gone_holds_the_winner_back(
    store: Store, snapshot: Snapshot, record_winner: Recorded
) -> None:
    report = record_winner()
    folder = Path(store.root) / snapshot_folder("points", snapshot.digest)
    manifest = json.loads((folder / "manifest.json").read_text())
    shard = shards_of(manifest, "train")[0].name
    (Path(store.root) / shard).unlink()
    assert judge_lineage(store, report).reason == (
        f"missing: snapshot: 1 of its shards are gone, such as {shard}; halving datasets fetch brings them "
        "back from another store"
    )
    assert judge_lineage(store, report, with_rows=False).passed
    (folder / "manifest.json").unlink()
    assert "missing: snapshot: no dataset snapshot points sha256:" in judge_lineage(store, report).reason
