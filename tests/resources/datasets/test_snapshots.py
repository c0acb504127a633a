"""A snapshot is its content: equal content is the same snapshot, and stored rows are not stored again.

Each shard is of one split.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import InvalidInput, NotFound, Store
from halving.trial.import_string import import_function
from resources.backend import Backend
from resources.datasets import canonical
from resources.datasets.snapshot_catalog import find_snapshot
from resources.datasets.snapshots import take_snapshot
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.specs import POINTS, open_dataset, source
from tests.resources.datasets.tables import images


def test_the_same_content_is_the_same_snapshot_wherever_and_whenever_it_is_taken(tmp_path: Path) -> None:
    here = Backend(root=str(tmp_path / "here"))
    there = Backend(root=str(tmp_path / "there"))
    first, again, other = (
        take_snapshot(backend.store, backend.catalog, source()) for backend in (here, here, there)
    )
    assert first.digest == again.digest == other.digest
    assert (first.new, again.new, other.new) == (True, False, True)
    assert first.key == f"points@{first.digest.removeprefix('sha256:')[:16]}"


def test_names_that_differ_by_case_alone_are_two_datasets(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    taken = {}
    for name in ("points", "Points"):
        taken[name] = [
            take_snapshot(backend.store, backend.catalog, provide(images(rows), name=name))
            for rows in (40, 50)
        ]
    assert len({snapshot.digest for snapshots in taken.values() for snapshot in snapshots}) == 4
    for name, both in taken.items():
        assert [find_snapshot(backend.catalog, f"{name}@{snapshot.digest}").name for snapshot in both] == [
            name,
            name,
        ]
        other = {"points": "Points", "Points": "points"}[name]
        with pytest.raises(NotFound):
            find_snapshot(backend.catalog, f"{other}@{both[0].digest}")


def test_other_rows_another_split_seed_or_another_target_are_another_snapshot(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    table = images(90)
    digests = []
    for content, changes in (
        (table, {}),
        (table, {"seed": 1}),
        (table, {"target": "id"}),
        (table.slice(0, 89), {}),
        (table.append_column("y", table["id"]), {}),
    ):
        digests.append(take_snapshot(backend.store, backend.catalog, provide(content, **changes)).digest)
    assert len(set(digests)) == 5


@pytest.mark.parametrize("batch_bytes", [2**22, 800])
def test_how_the_table_was_built_does_not_matter(
    backend: Backend, provide: Callable[..., DatasetSource], monkeypatch: pytest.MonkeyPatch, batch_bytes: int
) -> None:
    monkeypatch.setattr(canonical.rebatch, "__defaults__", (batch_bytes,))
    bits = pa.array([None if row % 7 == 0 else row % 3 == 0 for row in range(90)])
    inner = pa.array([None if row % 5 == 0 else {"a": row} for row in range(90)])
    table = (
        import_function("source", POINTS["source"])()
        .append_column("bits", bits)
        .append_column("inner", inner)
    )
    under_nulls = pa.StructArray.from_arrays(
        [pa.array(range(90))], ["a"], mask=pa.array([row % 5 == 0 for row in range(90)])
    )
    with_bitmaps = [
        pa.concat_arrays([pa.nulls(1, column.type), *column.chunks]).slice(1) for column in table.columns
    ]
    built = [
        table,
        pa.concat_tables([table.slice(0, 10), table.slice(10)]).replace_schema_metadata({"made": "today"}),
        iter(table.to_batches(max_chunksize=7)),
        pa.RecordBatchReader.from_batches(
            table.schema, table.slice(0, 13).to_batches() + table.slice(13).to_batches()
        ),
        pa.table(with_bitmaps, table.column_names),
        table.set_column(1, "label", table["label"].dictionary_encode()),
        table.set_column(3, "inner", under_nulls),
    ]
    digests = [take_snapshot(backend.store, backend.catalog, provide(content)).digest for content in built]
    assert digests == [digests[0]] * len(built)


def test_what_the_record_says_is_what_is_there(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source(), {"dagster_run": "r"})
    dataset = open_dataset(backend, snapshot)
    assert snapshot.rows == 90 == dataset.read().num_rows == sum(snapshot.splits.values())
    assert {split: dataset.read(split).num_rows for split in snapshot.splits} == snapshot.splits
    files = [
        path
        for path in Path(backend.store.path("shards/sha256")).rglob("*")
        if path.is_file() and not path.suffix
    ]
    assert snapshot.bytes == sum(file.stat().st_size for file in files)
    assert snapshot.source == POINTS["source"]
    assert len(snapshot.schema_sha256) == len(snapshot.transform_sha256) == 64
    assert dataset.manifest["schema"] == {"x": "double", "label": "string"}
    lineage = dataset.manifest["lineage"]
    assert "def data()" in lineage["code"]["source"]
    assert lineage["source"] == {"kind": "function", "function": "tests.trainables:data"}
    assert lineage["made_by"] == {"dagster_run": "r"}
    assert lineage["packages"]["pyarrow"] == pa.__version__
    held_out = dataset.read("test").to_pydict()
    assert dataset.manifest["statistics"]["test"] == {
        "x": {"nulls": 0, "min": min(held_out["x"]), "max": max(held_out["x"])},
        "label": {
            "nulls": 0,
            "min": "high",
            "max": "low",
            "classes": {name: held_out["label"].count(name) for name in ("high", "low")},
        },
    }


def test_splits_share_no_row_and_together_are_all_rows_in_the_order_of_the_source(backend: Backend) -> None:
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, source()))
    source_rows = import_function("source", POINTS["source"])()["x"].to_pylist()
    rows_of_splits = {split: dataset.read(split)["x"].to_pylist() for split in dataset.splits}
    assert sorted(row for rows in rows_of_splits.values() for row in rows) == sorted(source_rows)
    assert all(rows == [row for row in source_rows if row in rows] for rows in rows_of_splits.values())


def test_folds_are_read_as_train_and_validation(backend: Backend) -> None:
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, source(folds=3)))
    held_out = set(dataset.read("test")["x"].to_pylist())
    for fold in range(3):
        train, validation = (
            set(dataset.read(split, fold=fold)["x"].to_pylist()) for split in ("train", "validation")
        )
        assert not train & validation
        assert len(train) + len(validation) + len(held_out) == 90
    with pytest.raises(
        InvalidInput, match="fold = None is not accepted for the split 'train' of points: give one of 0 to 2"
    ):
        dataset.read("train")
    with pytest.raises(NotFound, match="dataset points has no fold 3; it has the folds 0 to 2"):
        dataset.read("train", fold=3)


def test_a_folder_of_files_is_a_snapshot_with_a_row_for_each_file(
    backend: Backend, tmp_path: Path, provide: Callable[..., DatasetSource]
) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(20):
            (tmp_path / "images" / label / f"{number}.png").write_bytes(f"{label} {number}".encode())
    snapshot = take_snapshot(backend.store, backend.catalog, provide(str(tmp_path / "images")))
    rows = {row["path"]: row for row in open_dataset(backend, snapshot).read().to_pylist()}
    assert len(rows) == 40
    assert {row["label"] for row in rows.values()} == {"cat", "dog"}
    assert rows["dog/2.png"]["content"] == b"dog 2"
    assert rows["dog/2.png"]["bytes"] == 5


def test_files_of_the_same_content_are_in_the_same_split(
    backend: Backend, tmp_path: Path, provide: Callable[..., DatasetSource]
) -> None:
    for copy in ("one", "two"):
        (tmp_path / "images" / copy).mkdir(parents=True)
        for number in range(40):
            (tmp_path / "images" / copy / f"{number}.png").write_bytes(f"image {number}".encode())
    dataset = open_dataset(
        backend, take_snapshot(backend.store, backend.catalog, provide(tmp_path / "images"))
    )
    contents = [set(dataset.read(split)["content"].to_pylist()) for split in dataset.splits]
    assert sum(map(len, contents)) == 40


def _raising() -> Any:
    yield pa.record_batch({"label": [1, 2]})
    raise KeyError("no such page")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            42,
            (
                "dataset.source = 'provided_source:load' is not accepted: it returned int; return a "
                "pyarrow.Table"
            ),
        ),
        (["a"], "is not accepted: it gave str among its rows; give pyarrow record batches"),
        ("/nowhere/at/all", "'/nowhere/at/all', which is not a folder"),
        (_raising, r"it raised KeyError at .*test_snapshots.py:\d+: 'no such page'"),
        (pa.table({"x": [1]}), r"dataset.target = 'label' is not accepted: the columns are \['x'\]"),
        (pa.table({"label": ["a", "b"]}), "dataset.splits.* of 2 rows is empty; give a larger share"),
        (pa.table({"label": pa.array([], pa.string())}), "is not accepted: it has no rows"),
        (pa.table({"label": [1], "x": pa.nulls(1)}), "its column 'x' has the type null; give numbers, texts"),
        (
            pa.table([[1], [2]], ["label", "label"]),
            r"its columns are \['label', 'label'\]; give each a name of its own",
        ),
        (
            iter([pa.record_batch({"label": [1]}), pa.record_batch({"y": [1]})]),
            "missing are .'label'., more are .'y'.",
        ),
        (
            iter([pa.record_batch({"label": [1]}), pa.record_batch({"label": ["x"]})]),
            "in the column 'label' the first rows are int64, later ones string; give all of them one type",
        ),
    ],
)
def test_a_source_that_cannot_be_a_dataset_is_refused_by_field_and_value(
    backend: Backend, provide: Callable[..., DatasetSource], content: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        take_snapshot(backend.store, backend.catalog, provide(content))
    assert list(backend.store.files("datasets")) == list(backend.store.files("shards")) == [], (
        "nothing is left"
    )


def test_a_store_that_cannot_be_written_ends_in_one_clear_error(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the store should be")
    with pytest.raises(OSError, match=str(blocked)):
        take_snapshot(Store(blocked), Backend(root=str(tmp_path / "other")).catalog, source())


def test_a_loader_hands_out_the_rows_of_a_split_each_once(
    backend: Backend, provide: Callable[..., DatasetSource]
) -> None:
    dataset = open_dataset(
        backend, take_snapshot(backend.store, backend.catalog, provide(images(6_000), shard_mib=1, folds=3))
    )
    held_out = dataset.read("test")["id"].to_pylist()
    for fold in (0, 2):
        loaded = {
            split: [
                number
                for batch in dataset.loader(split, batch_size=100, fold=fold, columns=["id", "pixels"])
                for number in batch["id"]
            ]
            for split in ("train", "validation")
        }
        assert sorted(loaded["validation"]) == sorted(dataset.read("validation", fold=fold)["id"].to_pylist())
        assert sorted([*loaded["train"], *loaded["validation"], *held_out]) == list(range(6_000))
    other = dataset.loader("train", batch_size=100, fold=1).state_dict()
    with pytest.raises(InvalidInput, match="split = 'train of fold 1' is not accepted"):
        dataset.loader("train", batch_size=100, fold=0).load_state_dict(other)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (
            pa.array([None, 1, 2, 3] * 100),
            "is of type int64 and has [0-9]+ nulls, for which NumPy has no value",
        ),
        (
            pa.array([None, True, False, True] * 100),
            "is of type bool and has [0-9]+ nulls, for which NumPy has no value",
        ),
        (
            pa.array([[1.0], [2.0, None], [], None] * 100),
            "is of type list<.*double> and has [0-9]+ nulls within its lists",
        ),
        (
            pa.array([[1, 2], [2, None]] * 200, pa.list_(pa.int64(), 2)),
            r"is of type fixed_size_list<.*\[2\] and has [0-9]+ nulls within its lists",
        ),
        (
            pa.array([b"a", b"caf\xe9", None, b"c"] * 100).view(pa.string()),
            "is of type string and has text that is not UTF-8: make it text or",
        ),
        (pa.array(["a", "café", None, "💡"] * 100, pa.large_string()), None),
        (pa.array([b"a", b"caf\xe9", None, b"c"] * 100), None),
        (pa.array([None, 0.5, float("nan"), 1.0] * 100), None),
        (pa.array([None, "a", "b", "c"] * 100), None),
        (pa.array([None, [1], [2, 3], []] * 100), None),
    ],
)
def test_a_loader_that_cannot_read_a_column_is_refused_when_it_is_opened(
    backend: Backend, provide: Callable[..., DatasetSource], values: pa.Array, what: str | None
) -> None:
    table = pa.table({"id": np.arange(400), "x": values, "label": np.arange(400) % 3})
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, provide(table)))
    if what is None:
        assert (
            sum(len(batch["x"]) for batch in dataset.loader("train", batch_size=32))
            == dataset.splits["train"]
        )
    else:
        with pytest.raises(InvalidInput, match=f"column 'x' of split 'train' of dataset points {what}"):
            dataset.loader("train", batch_size=32)


def test_snapshots_of_two_datasets_are_two_though_their_rows_are_equal(backend: Backend) -> None:
    first, second = (
        take_snapshot(backend.store, backend.catalog, source(name=name)) for name in ("points", "others")
    )
    assert (first.name, second.name) == ("points", "others")
    assert first.digest != second.digest
    shards = [open_dataset(backend, snapshot).manifest["shards"] for snapshot in (first, second)]
    assert shards[0] == shards[1], "which they share"


def test_other_rules_of_dealing_are_still_compared_with_the_snapshot_before(backend: Backend) -> None:
    first, second = (take_snapshot(backend.store, backend.catalog, source(seed=seed)) for seed in (0, 1))
    assert open_dataset(backend, second).manifest["lineage"]["before"] == first.digest


def test_the_held_out_rows_are_the_same_with_folds_and_without(backend: Backend) -> None:
    unfolded, folded = (
        open_dataset(backend, take_snapshot(backend.store, backend.catalog, source(folds=folds)))
        for folds in (None, 4)
    )
    assert unfolded.read("test").equals(folded.read("test"))


def test_a_folder_by_reference_is_not_what_it_was_with_its_content(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for number in range(60):
        (tmp_path / "raw" / f"{number}.txt").write_text(str(number))
    columns = []
    for reference in (None, "digest"):
        fields = {"folder": str(tmp_path / "raw"), "reference": reference}
        snapshot = take_snapshot(backend.store, backend.catalog, source(source=fields))
        columns.append(set(open_dataset(backend, snapshot).manifest["schema"]))
    assert columns[0] ^ columns[1] == {"content", "location"}


def test_a_folders_files_may_be_transformed_into_other_columns(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for number in range(60):
        (tmp_path / "raw" / f"{number}.txt").write_text(str(number))
    spec = source(
        source={"folder": str(tmp_path / "raw")}, transform="tests.resources.datasets.test_snapshots:lengths"
    )
    dataset = open_dataset(backend, take_snapshot(backend.store, backend.catalog, spec))
    assert sorted(dataset.read()["number"].to_pylist()) == list(range(60))


def lengths(table: pa.Table) -> pa.Table:
    return pa.table(
        {"number": [int(content) for content in table["content"].to_pylist()], "label": [0] * table.num_rows}
    )


def test_a_file_that_two_patterns_name_is_read_once(backend: Backend, tmp_path: Path) -> None:
    pq.write_table(images(300), tmp_path / "a.parquet")
    files = [f"{tmp_path}/*.parquet", f"{tmp_path}/a.parquet"]
    assert take_snapshot(backend.store, backend.catalog, source(source={"files": files})).rows == 300
