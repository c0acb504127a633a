"""A snapshot is read as it was taken: rows in stored order, splits by row number."""

import json
import pickle
import time
from pathlib import Path

import pyarrow as pa
import pytest

from halving import Dataset, NotFound, Store
from tests.sdk.conftest import Script

DIGEST = "sha256:" + "0123456789abcdef" * 4
FOLDER = "datasets/points/0123456789abcdef"
SPLITS = {"train": [0, 3, 1], "test": [4, 2], "none": []}


def arrow(table: pa.Table, rows: int = 2) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)  # several batches, as a large snapshot has
    return bytes(sink.getvalue())


@pytest.fixture
def dataset(any_store: Store) -> Dataset:
    """A snapshot of five rows, read from a folder and from S3."""
    store = any_store
    manifest = {"target": "label", "rows": 5, "splits": {name: len(rows) for name, rows in SPLITS.items()}}
    store.create(f"{FOLDER}/manifest.json", json.dumps(manifest).encode())
    store.create(f"{FOLDER}/data.arrow", arrow(pa.table({"x": [0.0, 0.1, 0.2, 0.3, 0.4], "label": list("abcde")})))
    store.create(f"{FOLDER}/files/images/0.png", b"pixels")
    for name, rows in SPLITS.items():
        store.create(f"{FOLDER}/splits/{name}.arrow", arrow(pa.table({"row": pa.array(rows, pa.int64())})))
    return Dataset(store, "points", DIGEST)


def test_all_rows_come_in_stored_order(dataset: Dataset) -> None:
    assert dataset.read().to_pydict() == {"x": [0.0, 0.1, 0.2, 0.3, 0.4], "label": list("abcde")}


def test_a_split_is_its_rows_in_its_order(dataset: Dataset) -> None:
    assert dataset.read("train").to_pydict() == {"x": [0.0, 0.3, 0.1], "label": ["a", "d", "b"]}
    assert dataset.read("test")["label"].to_pylist() == ["e", "c"]
    assert dataset.read("none").num_rows == 0
    assert dataset.read("none").schema == dataset.read().schema


def test_reading_a_split_holds_its_rows_and_a_record_batch_and_never_the_whole_snapshot(any_store: Store, script: Script) -> None:
    rows, batch = 12_000, 500
    values = pa.FixedSizeListArray.from_arrays(pa.array(range(rows * 250), pa.float32()), 250)
    splits = {"third": list(range(0, rows, 3)), "end": [rows - 1]}
    any_store.create(f"{FOLDER}/manifest.json", json.dumps({"splits": {name: len(split) for name, split in splits.items()}}).encode())
    any_store.create(f"{FOLDER}/data.arrow", arrow(pa.table({"x": values}), batch))
    for name, split in splits.items():
        any_store.create(f"{FOLDER}/splits/{name}.arrow", arrow(pa.table({"row": pa.array(split, pa.int64())}), rows))
    for name, split in splits.items():
        done = script(
            "import sys, pyarrow as pa, halving\n"
            "dataset = halving.Dataset(halving.Store(), 'points', sys.argv[1])\n"
            "table = dataset.read(sys.argv[2])\n"
            "first = [value[0].as_py() for value in table['x']]\n"
            "assert first == [row * 250 for row in map(int, sys.argv[3:])], first\n"
            "print(pa.default_memory_pool().max_memory())",
            DIGEST,
            name,
            *map(str, split),
        )
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) < (len(split) + 3 * batch) * 1000 + 500_000 < rows * 1000 / 1.9


def test_the_manifest_says_what_there_is(dataset: Dataset) -> None:
    assert dataset.target == "label"
    assert dict(dataset.splits) == {"train": 3, "test": 2, "none": 0}
    assert dataset.folder == FOLDER


def test_an_unknown_split_is_not_found_and_the_known_ones_are_named(dataset: Dataset) -> None:
    with pytest.raises(NotFound, match=r"dataset points has no split 'valid'; it has \['none', 'test', 'train'\]"):
        dataset.read("valid")


def test_a_file_of_the_snapshot_is_read_by_its_path(dataset: Dataset) -> None:
    assert dataset.file("images/0.png") == b"pixels"
    with pytest.raises(NotFound):
        dataset.file("images/1.png")


def test_another_digest_is_another_dataset(dataset: Dataset) -> None:
    other = Dataset(dataset.store, "points", "sha256:" + "f" * 64)
    with pytest.raises(NotFound):
        other.read()
    with pytest.raises(NotFound):
        _ = other.manifest


def test_rows_that_dvc_has_not_pulled_say_how_to_get_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(NotFound, match="`dvc pull`"):
        Dataset(store, "points", DIGEST).read()


def test_a_data_loader_in_a_process_of_its_own_gets_the_dataset_of_a_run(dataset: Dataset) -> None:
    dataset.give_up_at = lambda: time.monotonic()  # as a run's own does, it knows something that no other process has
    assert pickle.loads(pickle.dumps(dataset)).file("images/0.png") == b"pixels"
