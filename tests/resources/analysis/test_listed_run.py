"""A run whose folders were listed once is read as it was then, or as it is when what was listed is gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.object_server import object_server
from halving import NotFound, Store
from halving.maintenance import compaction
from halving.query.curve_stats import read_extremes
from halving.query.runs import read_run
from resources.analysis.run_index.listed_run import ListedRun
from tests.indexed_runs import add_record, add_run


@pytest.fixture(params=["disk", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "disk":
        yield Store(tmp_path / "store")
        return
    with object_server() as server:
        yield Store(server.root("bucket"))


def test_the_listings_are_those_of_the_store(store: Store) -> None:
    add_run(store, "a", loss=[1.0])
    add_run(store, "a", loss=[2.0])
    compaction.compact(store, "digits", "a")
    add_run(store, "a", loss=[3.0])
    listed = ListedRun(store, "digits", "a")
    for folder, names in (
        ("runs/project=digits/a", listed.records),
        ("metrics/project=digits/run=a", listed.metrics),
        ("metrics/project=digits/run=a/live", listed.live),
    ):
        assert names
        assert names == store.names(folder)
    assert ListedRun(store, "digits", "a").live == listed.live


def test_a_run_without_metrics_has_empty_listings_and_one_without_a_record_is_none(store: Store) -> None:
    add_record(store, "a")
    listed = ListedRun(store, "digits", "a")
    assert (listed.metrics, listed.live) == ([], [])
    with pytest.raises(NotFound, match=r"no run 'b' in project 'digits'"):
        ListedRun(store, "digits", "b")


def test_a_run_that_is_compacted_after_its_listing_is_read_from_the_compacted_file(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "GRACE_SECONDS", 0.0)
    add_run(store, "a", loss=[3.0, 1.0])
    listed = ListedRun(store, "digits", "a")
    compaction.compact(store, "digits", "a")
    compaction.compact(store, "digits", "a")  # deletes the segments
    assert store.names("metrics/project=digits/run=a/live") == []
    assert read_extremes(listed, read_run(listed, "digits", "a"))["loss"] == (1.0, 1.0, 3.0, 2)
