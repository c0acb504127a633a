"""A value out of bounds is found wherever a running trial's points are, and nothing is looked at twice."""

import math
from pathlib import Path
from typing import Any

import pytest

from halving import Store, StoreError
from halving.ingest.metric_writer import MetricWriter
from halving.maintenance.compaction import compact
from halving.metrics.parquet_reader import Files
from halving.query.divergence_watch import DivergenceWatch
from halving.trial.bounds import Range
from tests.sdk.metric_files import write_segment

BOUNDS: dict[str, Range] = {"loss": (None, 1_000.0), "accuracy": (0.0, 1.0), "score": (None, None)}


def watch(store: Store, attempt: int = 1, bounds: dict[str, Range] = BOUNDS) -> DivergenceWatch:
    return DivergenceWatch(store, "p", "r", attempt, bounds)


@pytest.mark.parametrize(
    ("metric", "value", "message"),
    [
        ("loss", 1_000.5, "metric 'loss' became 1000.5 at step 7, above its bound of 1000.0"),
        ("loss", math.nan, "metric 'loss' became nan at step 7"),
        ("accuracy", -0.25, "metric 'accuracy' became -0.25 at step 7, below its bound of 0.0"),
        ("score", -math.inf, "metric 'score' became -inf at step 7"),
        ("loss", 1_000.0, None),
        ("score", 1e300, None),
        ("other", math.nan, None),
    ],
)
def test_a_value_out_of_bounds_is_named_with_its_bound_and_step(
    store: Store, metric: str, value: float, message: str | None
) -> None:
    logged = [(metric, step, 0, value if step == 7 else 0.5) for step in range(10)]
    write_segment(store, "r", 1, 0, logged)
    looking = watch(store)
    assert looking.check() == message
    assert looking.check() == message


def test_what_is_in_the_journal_only_is_found_and_so_is_what_follows(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    looking = watch(store)
    assert looking.check() is None
    for step in range(100):
        writer.append({"loss": 1.0, "lr": math.nan}, step, 0)
        assert looking.check() is None
    assert store.names("metrics/project=p/run=r/live") == []
    writer.append({"loss": 2_000.0}, 100, 0)
    assert looking.check() == "metric 'loss' became 2000.0 at step 100, above its bound of 1000.0"
    assert writer.close()
    writer.release()


@pytest.mark.parametrize("checked_before", [True, False])
def test_what_was_compacted_before_it_was_seen_is_found(store: Store, checked_before: bool) -> None:
    looking = watch(store)
    write_segment(store, "r", 1, 0, [("loss", 1, 0, 1.0)])
    if checked_before:
        assert looking.check() is None
    write_segment(store, "r", 1, 1, [("loss", 2, 0, math.inf)])
    compact(store, "p", "r")
    assert looking.check() == "metric 'loss' became inf at step 2"


@pytest.mark.parametrize("compacted", [True, False])
def test_what_an_earlier_attempt_streamed_is_not_this_ones(store: Store, compacted: bool) -> None:
    write_segment(store, "r", 1, 0, [("loss", 1, 0, math.nan)])
    write_segment(store, "r", 2, 0, [("loss", 1, 0, 0.5)])
    if compacted:
        compact(store, "p", "r")
    assert watch(store, 2).check() is None
    assert watch(store, 1).check() == "metric 'loss' became nan at step 1"


def test_each_segment_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = Files.segment

    def segment(self: Files, path: str, *arguments: Any) -> Any:
        read.append(Path(path).name)
        return real(self, path, *arguments)

    monkeypatch.setattr(Files, "segment", segment)
    looking = watch(store)
    for sequence in range(3):
        write_segment(store, "r", 1, sequence, [("loss", sequence, 0, 1.0)])
        assert looking.check() is None
        assert looking.check() is None
    assert read == [f"0001-{sequence:06d}.parquet" for sequence in range(3)]


def test_without_bounds_nothing_is_read(store: Store) -> None:
    write_segment(store, "r", 1, 0, [("loss", 1, 0, math.nan)])
    assert watch(store, bounds={}).check() is None


def test_a_store_that_is_away_is_an_error_of_ours_and_nothing_is_missed_by_it(store: Store) -> None:
    write_segment(store, "r", 1, 0, [("loss", 1, 0, 1.0)])
    looking = watch(store)
    assert looking.check() is None
    write_segment(store, "r", 1, 1, [("loss", 2, 0, math.nan)])
    assert store.folder is not None
    live = store.folder / "metrics/project=p/run=r/live"
    live.rename(live.with_name("away"))
    live.write_text("not a folder")
    with pytest.raises(StoreError, match="cannot read the metrics of run 'r'"):
        looking.check()
    live.unlink()
    live.with_name("away").rename(live)
    assert looking.check() == "metric 'loss' became nan at step 2"
