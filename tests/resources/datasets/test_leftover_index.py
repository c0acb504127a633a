"""An index that pandas has left in its files is no column."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Dataset
from resources.backend import Backend
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.specs import read_rows, spec


def frame(indexed: bool) -> pd.DataFrame:
    rows = []
    if indexed:
        rows = [{"id": 9999, "x": 0.5, "ok": True, "label": 1}]
    rows += [
        {"id": row, "x": row * 37 % 101 / 101, "ok": row % 4 != 0, "label": row % 2} for row in range(400)
    ]
    whole = pd.DataFrame(rows)
    return whole[whole["ok"]].drop(columns="ok")


def several_levels(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.set_index(
        pd.MultiIndex.from_arrays([[str(number) for number in rows.index], list(rows.index)])
    )


@pytest.mark.parametrize("change", [lambda rows: rows, several_levels, lambda rows: rows.sort_values("x")])
@pytest.mark.parametrize("way", ["table", "batches", "parquet", "csv", "sql", "transform", "delta"])
def test_a_leftover_index_is_no_column_and_moves_no_row(
    raw: Path,
    backend: Backend,
    provide: Callable[..., DatasetSource],
    way: str,
    change: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    splits: list[dict[int, str]] = []
    for has_more in (False, True):
        rows = pa.Table.from_pandas(change(frame(has_more)))
        assert any(name.startswith("__index_level_") for name in rows.column_names)
        source = provide(rows)
        if way == "batches":
            source = provide(lambda rows=rows: iter(rows.to_batches(max_chunksize=50)))
        if way in ("parquet", "sql"):
            pq.write_table(rows, raw / "raw.parquet")
            source = spec({"files": f"{raw}/raw.parquet"})
        if way == "sql":
            source = spec({"sql": f"SELECT * FROM read_parquet('{raw}/raw.parquet')"})
        if way == "csv":
            rows.to_pandas(ignore_metadata=True).to_csv(raw / "raw.csv", index=False)
            source = spec({"files": f"{raw}/raw.csv"})
        if way == "transform":
            source = spec(
                {"files": f"{raw}/plain.parquet"},
                transform="tests.resources.datasets.test_leftover_index:keep_odd_ids",
            )
            pq.write_table(pa.Table.from_pandas(frame(has_more), preserve_index=False), raw / "plain.parquet")
        if way == "delta":
            from deltalake import write_deltalake

            write_deltalake(str(raw / "lake"), rows, mode="overwrite")
            source = spec({"delta": str(raw / "lake"), "version": int(has_more)})
        taken = take_snapshot(backend.store, backend.catalog, source)
        snapshot = Dataset(backend.store, "points", taken.digest)
        assert snapshot.manifest["key"] == ["id", "x"]
        assert sorted(snapshot.manifest["schema"]) == ["id", "label", "x"]
        splits.append(
            {number: split for split in snapshot.splits for number in snapshot.read(split)["id"].to_pylist()}
        )
    before, after = splits
    assert after == {9999: after[9999]} | before


def keep_odd_ids(rows: pa.Table) -> pa.Table:
    """A transform that works on a pandas frame."""
    whole = rows.to_pandas()
    return pa.Table.from_pandas(whole[whole["id"] % 2 == 1])


def test_an_index_in_one_file_alone_is_no_difference_and_a_named_one_is_a_column(
    raw: Path, backend: Backend
) -> None:
    pq.write_table(pa.Table.from_pandas(frame(indexed=False)), raw / "a.parquet")
    pq.write_table(pa.Table.from_pandas(frame(indexed=False), preserve_index=False), raw / "b.parquet")
    assert read_rows(backend, spec({"files": str(raw)})).column_names == ["id", "x", "label"]
    pq.write_table(pa.Table.from_pandas(frame(indexed=False).set_index("id")), raw / "c.parquet")
    assert set(read_rows(backend, spec({"files": str(raw)})).column_names) == {"id", "x", "label"}
