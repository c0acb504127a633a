"""The tail of a live run: together with the listed files it is what was logged, each point once, whatever is
drained meanwhile.
"""

import time

import pyarrow.parquet as pq
import pytest

from halving import Store
from halving.ingest.metric_writer import MetricWriter
from halving.maintenance.compaction import compact
from halving.metrics.manifest import RunFiles, run_files
from halving.query.tail import tail


@pytest.fixture
def store(any_store: Store) -> Store:
    """Everything here holds for every kind of store."""
    return any_store


def test_the_tail_of_a_live_run_is_what_no_segment_has(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    for step in range(10):
        writer.append({"a": float(step)}, step, 1_000_000)
    assert writer.flush()
    for step in range(10, 15):
        writer.append({"a": float(step), "b": 1.0}, step, 1_000_000)
    table = tail(store, "p", "r", run_files(store, "p", "r"))
    assert table is not None
    assert sorted((row["key"], row["step"], row["value"]) for row in table.to_pylist()) == [
        *(("a", step, float(step)) for step in range(10, 15)),
        *(("b", step, 1.0) for step in range(10, 15)),
    ]
    assert writer.close()
    writer.release()
    assert tail(store, "p", "r", run_files(store, "p", "r")) is None


@pytest.mark.folder  # an object store deletes compacted segments later
def test_what_is_drained_and_compacted_while_the_tail_is_read_is_looked_for_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=3600)
    writer.append({"a": 1.0}, 0, 1_000_000)
    files = run_files(store, "p", "r")

    def list_files(*_: str) -> RunFiles:
        assert writer.flush()
        stale = run_files(store, "p", "r")
        compact(store, "p", "r")  # deletes the segments
        return stale

    monkeypatch.setattr("halving.query.tail.run_files", list_files)
    with pytest.raises(FileNotFoundError, match="compacted"):
        tail(store, "p", "r", files)
    assert writer.close()
    writer.release()


def test_segments_and_tail_together_are_always_exactly_what_was_logged(store: Store) -> None:
    writer = MetricWriter(store, "p", "r", 1, delay=0.001, log_segment_bytes=1 << 15)
    looks = 0
    until = time.monotonic() + 3
    for step in range(100_000):
        writer.append({"a": float(step)}, step, 0)
        if step % 97 == 0:
            files = run_files(store, "p", "r")
            try:
                rest = tail(store, "p", "r", files)
            except FileNotFoundError:
                continue
            points = [
                s
                for name in files.segments
                for s in pq.read_table(store.path(name), columns=["step"], filesystem=store.filesystem)[
                    "step"
                ].to_pylist()
            ]
            points += rest["step"].to_pylist() if rest else []
            assert sorted(points) == list(range(step + 1))
            looks += 1
        if looks > 1 and time.monotonic() > until:
            break
    assert looks > 1
    assert writer.close()
    writer.release()
