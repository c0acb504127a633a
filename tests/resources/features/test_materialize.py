"""A day of a view is materialised whole or stays as it was, also where a process is killed."""

import multiprocessing
import os
import subprocess
import sys
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import InvalidInput, Store
from halving.features import RequestTransform
from halving.maintenance.orphan_files import delete_orphan_file, find_orphan_files
from resources.features import partitions as partitions_module
from resources.features.join import join_features
from resources.features.materialize import materialize_all, materialize_day
from resources.features.online import push
from resources.features.partitions import digest_of_partitions, partition
from tests.resources.features.histories import (
    DAY,
    FIRST,
    MICROS,
    SECOND,
    SOURCE,
    TRANSFORMS,
    Row,
    at,
    days,
    join,
    labels,
    materialize,
    refusal,
    table,
    view,
)


def test_the_same_content_again_is_the_same_file_and_no_new_generation(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = [Row(2, 10, 12, 1.0), Row(1, 10, 12, 2.0), Row(1, DAY, DAY, 3.0)]
    shape = materialize(store, rows)
    before = days(store, shape)
    assert [(day.day, day.generation, day.rows) for day in before] == [(FIRST, 1, 2), (SECOND, 1, 1)]
    SOURCE["rows"] = table(reversed(rows))
    assert not any(done.new for done in materialize_all(store, shape).days.values())
    assert not materialize_day(store, shape, FIRST).new
    assert days(store, shape) == before
    assert len(list(tmp_path.rglob("*.parquet"))) == 2


def test_a_day_that_changed_is_a_new_file_that_counts_and_the_other_days_stay(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 10, 12, 1.0), Row(1, DAY, DAY, 3.0)])
    before = days(store, shape)
    SOURCE["rows"] = table([Row(1, 10, 12, 1.5), Row(1, DAY, DAY, 3.5)])
    done = materialize_day(store, shape, FIRST)
    assert (done.new, done.partition.generation) == (True, 2)
    after = days(store, shape)
    assert (after[0], after[1]) == (done.partition, before[1])
    assert digest_of_partitions(after) != digest_of_partitions(before)
    # what was joined before is still there
    assert pq.read_table(store.path(before[0].name))["value"].to_pylist() == [1.0]
    materialize(store, [Row(1, 10, 12, 1.0)])
    assert [day.generation for day in days(store, shape)] == [3, 1]
    assert digest_of_partitions(days(store, shape)) == digest_of_partitions(before)


def test_a_day_without_rows_is_an_empty_file(tmp_path: Path) -> None:
    store = Store(tmp_path)
    SOURCE["rows"] = table([Row(1, 10, 12, 1.0)])
    assert materialize_day(store, view(), SECOND).partition.rows == 0
    assert join(store, labels([(1, 5 * DAY)]), ["clicks@1:value"], view())["value"].to_pylist() == [None]


def test_a_file_is_sorted_by_entity_and_time_with_its_checksum_as_name(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(
        store, [Row(2, 10, 12, 1.0), Row(1, 20, 22, 2.0), Row(1, 10, 30, 3.0), Row(1, 10, 20, 4.0)]
    )
    (day,) = days(store, shape)
    table = pq.read_table(store.path(day.name))
    assert table["value"].to_pylist() == [4.0, 3.0, 2.0, 1.0]
    assert table.column_names == ["user", "_event", "_known", "value"]
    assert table["_known"].type == MICROS
    assert (day.first, day.last, day.last_known) == tuple(
        int(at(minute).timestamp() * 1e6) for minute in (10, 20, 30)
    )


def test_rows_of_any_number_are_in_row_groups_of_one_size(tmp_path: Path) -> None:
    store = Store(tmp_path)
    count = 300_000
    times = pa.array([at(0)] * count, MICROS)
    rows = pa.table({"user": range(count), "ts": times, "loaded": times, "value": [1.0] * count})
    shape = materialize(store, rows)
    (day,) = days(store, shape)
    metadata = pq.read_metadata(store.path(day.name))
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [
        131_072,
        131_072,
        37_856,
    ]


def test_of_a_view_with_a_delay_an_entity_has_one_row_at_a_time(tmp_path: Path) -> None:
    delayed = view(created=None, delay="1h")
    assert "(user, ts) is not unique" in refusal(
        Store(tmp_path), [Row(7, 10, 12, 1.0), Row(7, 10, 13, 2.0)], delayed
    )
    # the column of created times is not looked at
    shape = materialize(Store(tmp_path), [Row(7, 10, 9, 1.0)], delayed)
    assert days(Store(tmp_path), shape)[0].last_known == int(at(70).timestamp() * 1e6)


def test_a_transform_that_raises_for_one_day_leaves_the_others(tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = view(transform=f"{TRANSFORMS}:raises_on_unlucky")
    SOURCE["rows"] = table([Row(1, 10, 12, 1.0), Row(1, DAY, DAY, 13.0), Row(1, 2 * DAY, 2 * DAY, 2.0)])
    done = materialize_all(store, shape, late=True)
    assert sorted(done.days) == [FIRST, date(2026, 3, 3)]
    assert list(done.failed) == [SECOND]
    assert "raises_on_unlucky of the feature view clicks@1 raised ZeroDivisionError at transforms.py:" in str(
        done.failed[SECOND]
    )
    before = days(store, shape)
    SOURCE["rows"] = table([Row(1, 10, 12, 13.0)])
    assert "unlucky" in refusal(store, SOURCE["rows"], shape)  # and a day that was there stays
    assert days(store, shape) == before


def test_a_request_gets_the_features_that_training_had_of_the_same_row(tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = pa.table(
        {
            "user": [1, 2, 3],
            "ts": pa.array([at(0), at(600), at(1400)], MICROS),
            "loaded": pa.array([at(1), at(601), at(1401)], MICROS),
            "clicks": pa.array([1, 0, 5], pa.int32()),
            "seen": pa.array([3, 0, None], pa.int32()),
        }
    )
    shape = materialize(
        store, rows, view(transform=f"{TRANSFORMS}:rate", schema={"ctr": "double", "night": "bool"})
    )
    offline_rows = join(
        store, labels([(1, 1500), (2, 1500), (3, 1500)]), ["clicks@1:ctr", "clicks@1:night"], shape
    ).select(["ctr", "night"])
    answer = RequestTransform(days(store, shape)[0].definition)
    assert answer.definition.input_schema() == rows.schema.remove_metadata()
    for row, offline in zip(rows.to_pylist(), offline_rows.to_pylist(), strict=True):
        assert repr(answer({name: row[name] for name in ("ts", "clicks", "seen")})) == repr(offline)
    with pytest.raises(InvalidInput, match="seens is not accepted: the source of clicks@1 has"):
        answer({"seens": 1})
    with pytest.raises(InvalidInput, match="are not accepted by clicks@1"):
        answer({"clicks": "many"})


def killed_at_publishing(root: str, at_generation: bool) -> None:
    """Die after writing a day's file, before or after it is in the store."""

    def die(store: Store, name: str, *arguments: Any, **more: Any) -> None:
        os._exit(9)

    if at_generation:
        Store.create = die  # type: ignore[method-assign]
    else:
        Store.take_over = die  # type: ignore[method-assign]
    SOURCE["rows"] = table([Row(1, 10, 12, 2.0)])
    materialize_day(Store(root), view(), FIRST)


@pytest.mark.slow
@pytest.mark.parametrize("at_generation", [False, True])
def test_a_process_that_is_killed_leaves_the_day_as_it_was(at_generation: bool, tmp_path: Path) -> None:
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 10, 12, 1.0)])
    before = days(store, shape)
    process = multiprocessing.get_context("spawn").Process(
        target=killed_at_publishing, args=(str(tmp_path), at_generation)
    )
    process.start()
    process.join()
    assert process.exitcode == 9
    assert days(store, shape) == before
    assert join(store, labels([(1, 20)]), ["clicks@1:value"], shape)["value"].to_pylist() == [1.0]
    in_a_week = datetime.now(UTC) + timedelta(days=8)
    orphans = list(find_orphan_files(store, (), in_a_week))
    assert len(orphans) == int(at_generation)
    for orphan in orphans:
        delete_orphan_file(store, orphan, in_a_week)
        assert not store.exists(orphan.name)
    materialize(store, [Row(1, 10, 12, 2.0)])
    assert join(store, labels([(1, 20)]), ["clicks@1:value"], shape)["value"].to_pylist() == [2.0]


def test_a_day_that_is_published_while_retention_is_about_to_delete_its_file_stays(tmp_path: Path) -> None:
    """A killed process left the file; when retention has listed it, another process publishes the same."""
    store = Store(tmp_path)
    shape = materialize(store, [Row(1, 10, 12, 1.0)])
    [name] = [name for name, _, _ in store.files("features") if name.endswith(".parquet")]
    store.delete(f"features/clicks/1/day={FIRST}/generation-000001.json")
    os.utime(store.path(name), (time.time() - 864_000,) * 2)
    now = datetime.now(UTC)
    [orphan] = find_orphan_files(store, (), now)
    assert orphan.name == name
    materialize(store, [Row(1, 10, 12, 1.0)])
    delete_orphan_file(store, orphan, now)
    assert join(store, labels([(1, 20)]), ["clicks@1:value"], shape)["value"].to_pylist() == [1.0]


def test_of_two_processes_that_publish_a_day_at_once_one_comes_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    create = Store.create
    raced = []

    def race(self: Store, name: str, *arguments: Any, **more: Any) -> None:
        if "generation-" in name and not raced:
            raced.append(name)
            materialize(store, [Row(1, 10, 12, 7.0)])  # the other one, which is faster
        create(self, name, *arguments, **more)

    monkeypatch.setattr(Store, "create", race)
    shape = materialize(store, [Row(1, 10, 12, 8.0)])
    current = partition(store, shape.name, shape.version, FIRST)
    assert current is not None
    assert current.generation == 2
    assert len(store.names(f"features/clicks/1/day={FIRST}")) == 4
    monkeypatch.setattr(partitions_module, "_TRIES", 0)
    with pytest.raises(OSError, match=r"publish clicks@1 of 2026-03-01 again and again"):
        materialize(store, [Row(1, 10, 12, 9.0)])


def test_a_view_is_materialised_joined_and_pushed_on_any_store(any_store: Store, tmp_path: Path) -> None:
    rows = [
        Row(user, day * DAY + 5, day * DAY + 9, float(user + day)) for user in range(3) for day in range(3)
    ]
    shape = materialize(any_store, rows)
    with join_features(
        any_store, labels([(2, 5 * DAY), (1, DAY + 8)]), ["clicks@1:value"], {shape.key: shape}, time="when"
    ) as joined:
        assert joined.reader.read_all()["value"].to_pylist() == [4.0, 1.0]
    assert push(any_store, shape, str(tmp_path / "online.db")).taken == 3
    assert not any(done.new for done in materialize_all(any_store, shape, late=True).days.values())


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["", "to a full disk"])
def test_a_day_larger_than_the_memory_it_may_take_is_spilled(tmp_path: Path, full: bool) -> None:
    count = 400_000
    pq.write_table(
        pa.table(
            {
                "user": pa.array(range(count, 0, -1)),
                "ts": pa.array([at(0)] * count, MICROS),
                "loaded": pa.array([at(0)] * count, MICROS),
                "value": pa.array([f"{number:0100}" for number in range(count)]),
            }
        ),
        tmp_path / "rows.parquet",
    )
    code = f"""
from resources.features.materialize import materialize_all
from halving import Store
from tests.resources.features.histories import view
given = view(source={{"files": {str(tmp_path / "rows.parquet")!r}}}, schema={{"value": "string"}})
done = materialize_all(Store({str(tmp_path / "store")!r}), given, memory="100MB")
assert not done.failed, done.failed
print([one.partition.rows for one in done.days.values()])
"""
    if full:
        code = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))\n{code}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if full:
        assert "StoreError: materialising the feature view clicks@1 failed: " in done.stderr
        return
    assert (done.stdout.strip(), done.returncode) == (f"[{count}]", 0), done.stderr
