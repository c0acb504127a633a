"""What a run samples of itself, read for its page every few seconds."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from halving import Run, Store
from halving.maintenance.compaction import compact
from resources.analysis.system_points import KeptSystemPoints, read_system_points
from resources.analysis.time_spent import SAMPLED

_SAMPLES = 300  # so many of a metric in one segment have buckets in its footer


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Row groups of which points are read."""
    groups: list[int] = []
    read_row_group = pq.ParquetFile.read_row_group

    def count_and_read(file: pq.ParquetFile, group: int, columns: list[str], **options: Any) -> Any:
        if "value" in columns:
            groups.append(group)
        return read_row_group(file, group, columns=columns, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", count_and_read)
    return groups


def _add_samples(store: Store, run_id: str, ranks: int, value: float = 1.0) -> None:
    with Run(store, project="p", run_id=run_id, params={}, seed=None, system_metrics=None) as run:
        for step in range(_SAMPLES):
            run.log(
                {f"system/collectives/rank.{rank}": value for rank in range(1, ranks + 1)} | {"loss": 1.0},
                step=step,
            )


@pytest.mark.parametrize("is_compacted", [False, True])
def test_points_are_read_as_often_for_one_rank_as_for_many(
    tmp_path: Path, reads: list[int], is_compacted: bool
) -> None:
    store = Store(tmp_path)
    for ranks in (1, 64):
        _add_samples(store, f"of-{ranks}", ranks)
        if is_compacted:
            compact(store, "p", f"of-{ranks}")
        reads.clear()
        points = read_system_points(store, "p", f"of-{ranks}", [SAMPLED])
        assert points is not None
        assert {len(own.value) for own in points.values()} == {_SAMPLES}
        assert (len(points), len(reads)) == (ranks, 1)


def test_a_run_that_is_looked_at_again_is_not_read_again(tmp_path: Path, reads: list[int]) -> None:
    store = Store(tmp_path)
    kept = KeptSystemPoints(store, [SAMPLED])
    assert kept.of("p", "r") == {}
    _add_samples(store, "r", 2)
    lengths = []
    for _ in range(2):
        points = kept.of("p", "r")
        assert points is not None
        lengths.append([len(own.value) for own in points.values()])
    assert (lengths, len(reads)) == ([[_SAMPLES] * 2] * 2, 1)


def test_of_many_runs_those_that_were_looked_at_last_are_kept(tmp_path: Path, reads: list[int]) -> None:
    store = Store(tmp_path)
    kept = KeptSystemPoints(store, [SAMPLED], limit=2 * _SAMPLES * 28)
    for run in "abc":
        _add_samples(store, run, 1)
    for run in ("a", "b", "a", "c", "a", "b"):
        kept.of("p", run)
    assert len(reads) == 4, "a once, b, c, and b again, which c has taken the place of"


def test_a_run_recorded_again_under_its_id_has_no_points_of_the_deleted_run(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path)
    kept = KeptSystemPoints(store, [SAMPLED])
    for value in (1.0, 2.0):
        _add_samples(store, "r", 1, value)
        points = kept.of("p", "r")
        assert points is not None
        assert {float(own.value[0]) for own in points.values()} == {value}
        shutil.rmtree(tmp_path)


def test_nothing_is_said_while_the_store_is_damaged(tmp_path: Path) -> None:
    store = Store(tmp_path)
    _add_samples(store, "r", 1)
    segment = next(tmp_path.rglob("*.parquet"))
    segment.chmod(0o644)
    segment.write_bytes(b"PAR1 no more")
    assert KeptSystemPoints(store, [SAMPLED]).of("p", "r") is None
