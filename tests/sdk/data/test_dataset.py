"""A snapshot is read as it was taken: the shards of a split in their order, each checked against its name."""

import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from halving import Dataset, InvalidInput, NotFound, Store, StoreError
from halving.data import dataset as dataset_module
from halving.data.shards import open_shard, shards_of
from halving.store.deadline import Deadline
from tests.sdk.conftest import Script
from tests.sdk.data.sharded import arrow_file, put_shard, snapshot

TRAIN = [pa.table({"x": [0.0, 0.3, 0.1], "label": list("adb")}), pa.table({"x": [0.5], "label": ["f"]})]
TEST = [pa.table({"x": [0.4, 0.2], "label": list("ec")})]


@pytest.fixture
def dataset(any_store: Store) -> Dataset:
    """A snapshot of six rows, read from a folder and from S3."""
    splits = {"train": TRAIN, "test": TEST, "none": []}
    return snapshot(
        any_store,
        {
            name: [put_shard(any_store, arrow_file(table, 2), table.num_rows) for table in tables]
            for name, tables in splits.items()
        },
    )


def test_a_split_is_the_rows_of_its_shards_in_order(dataset: Dataset) -> None:
    assert dataset.read("train").to_pydict() == {"x": [0.0, 0.3, 0.1, 0.5], "label": ["a", "d", "b", "f"]}
    assert dataset.read("test", columns=["label"]).to_pydict() == {"label": ["e", "c"]}
    assert dataset.read("none").num_rows == 0
    assert dataset.read("none").schema == dataset.read().schema
    assert sorted(dataset.read()["label"].to_pylist()) == list("abcdef")


@pytest.mark.slow
def test_reading_a_split_from_an_object_store_holds_its_rows_once(any_store: Store, script: Script) -> None:
    rows = 12_000
    values = pa.FixedSizeListArray.from_arrays(pa.array(range(rows * 250), pa.float32()), 250)
    content = arrow_file(pa.table({"x": values}), 500)
    dataset = snapshot(any_store, {"train": [put_shard(any_store, content, rows)], "end": []})
    done = script(
        "import sys, pyarrow as pa, halving\n"
        "table = halving.Dataset(halving.Store(), 'points', sys.argv[1]).read('train')\n"
        "assert table['x'][11_999][0].as_py() == 11_999 * 250\n"
        "print(pa.default_memory_pool().max_memory())",
        dataset.digest,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < (0.1 if any_store.folder is not None else 1.1) * len(content)


@pytest.mark.parametrize("split", ["train", "test", "none"])
@pytest.mark.parametrize("columns", [None, ["x"], ["label"], ["label", "x"]])
def test_the_batches_of_a_split_are_its_rows_in_order(
    dataset: Dataset, split: str, columns: list[str] | None
) -> None:
    batches = list(dataset.batches(split, columns=columns))
    assert [batch.num_rows for batch in batches] == {"train": [2, 1, 1], "test": [2], "none": []}[split]
    whole = dataset.read(split, columns=columns)
    assert pa.Table.from_batches(batches, whole.schema).equals(whole)


def test_batches_of_what_is_not_there_are_refused_and_a_damaged_shard_is_named(store: Store) -> None:
    good, other = (put_shard(store, arrow_file(table, 2), table.num_rows) for table in TRAIN)
    dataset = snapshot(store, {"train": [good, other], "test": []})
    with pytest.raises(NotFound, match="has no split 'valid'"):
        dataset.batches("valid")
    with pytest.raises(NotFound, match="has no fold 0"):
        dataset.batches("train", fold=0)
    with pytest.raises(NotFound, match="no column 'y'"):
        next(dataset.batches("train", columns=["y"]))
    path = Path(store.path(other.name))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    batches = dataset.batches("train")
    assert [next(batches).num_rows, next(batches).num_rows] == [2, 1]
    with pytest.raises(StoreError, match=f"the shard {other.name} .* is damaged"):
        next(batches)


@pytest.mark.slow
def test_batches_from_an_object_store_hold_two_shards_however_many_there_are(
    any_store: Store, script: Script
) -> None:
    rows = 2_000
    shards = []
    for number in range(12):
        values = pa.FixedSizeListArray.from_arrays(
            pa.array(range(number, number + rows * 250), pa.float32()), 250
        )
        content = arrow_file(pa.table({"x": values}), 500)
        shards.append(put_shard(any_store, content, rows))
    dataset = snapshot(any_store, {"train": shards})
    done = script(
        "import sys, pyarrow as pa, halving\n"
        "batches = halving.Dataset(halving.Store(), 'points', sys.argv[1]).batches('train')\n"
        "assert sum(batch.num_rows for batch in batches) == 24_000\n"
        "print(pa.default_memory_pool().max_memory())",
        dataset.digest,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < (0.1 if any_store.folder is not None else 2.1) * len(content)


def test_the_manifest_says_what_there_is(dataset: Dataset) -> None:
    assert dataset.target == "label"
    assert dict(dataset.splits) == {"train": 4, "test": 2, "none": 0}
    assert dataset.folds == 0


def test_an_unknown_split_fold_or_column_is_not_found_and_the_known_ones_are_named(dataset: Dataset) -> None:
    with pytest.raises(
        NotFound, match=r"dataset points has no split 'valid'; it has \['none', 'test', 'train'\]"
    ):
        dataset.read("valid")
    with pytest.raises(NotFound, match="dataset points has no fold 0; it has no folds"):
        dataset.read("train", fold=0)
    with pytest.raises(NotFound, match=r"no column 'y'; it has \['x', 'label'\]"):
        dataset.read("train", columns=["x", "y"])


def test_what_does_not_fit_into_memory_is_refused_with_its_size(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = sum(shard.bytes for shard in shards_of(dataset.manifest, "train"))
    monkeypatch.setattr(dataset_module, "available_memory", lambda: size)
    assert dataset.read("train").num_rows == 4
    monkeypatch.setattr(dataset_module, "available_memory", lambda: size - 1)
    with pytest.raises(
        InvalidInput,
        match=r"read\('train'\) is not accepted: the split 'train' of points has 0.0 GB.*use loader",
    ):
        dataset.read("train")


@pytest.mark.parametrize("fault", ["a bit", "the end", "all"])
def test_a_shard_that_is_not_what_its_name_says_is_named(store: Store, fault: str) -> None:
    content = arrow_file(TRAIN[0])
    shard = put_shard(store, content, 3)
    dataset = snapshot(store, {"train": [shard]})
    path = Path(store.path(shard.name))
    path.unlink()
    if fault == "a bit":
        path.write_bytes(content[:-400] + bytes([content[-400] ^ 1]) + content[-399:])
    elif fault == "the end":
        path.write_bytes(content[:-10])
    kind, says = (NotFound, "is missing from") if fault == "all" else (StoreError, "is damaged")
    with pytest.raises(
        kind, match=f"the shard {shard.name} .*{says}|the shard {shard.name} {says}"
    ) as raised:
        dataset.read("train")
    assert "`halving datasets fetch` brings it back" in str(raised.value)
    if fault != "a bit":  # which is not looked for where a shard is mapped to read some of its rows
        with pytest.raises(kind, match=shard.name), open_shard(store, shard):
            pass


def test_another_digest_is_another_dataset(dataset: Dataset) -> None:
    other = Dataset(dataset.store, "points", "sha256:" + "f" * 64)
    with pytest.raises(NotFound, match="no dataset snapshot points sha256:ffff"):
        other.read()


def test_a_manifest_that_dvc_has_not_pulled_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="`dvc pull`"):
        Dataset(Store(tmp_path), "points", "sha256:" + "0" * 64).read()


def test_a_snapshot_of_a_version_without_shards_says_so(store: Store) -> None:
    old = Dataset(store, "points", "sha256:" + "0" * 64)
    store.create(f"{old.folder}/manifest.json", b'{"rows": 3}')
    with pytest.raises(StoreError, match="is of an older version, which had no shards; take it again"):
        _ = old.target


def test_a_data_loader_in_a_process_of_its_own_gets_the_dataset_of_a_run(dataset: Dataset) -> None:
    # Like a run's own dataset, this one has something that no other process has.
    dataset.deadline = Deadline.after(0)
    assert pickle.loads(pickle.dumps(dataset)).read("test").num_rows == 2


def test_train_of_several_splits_is_their_rows_in_the_order_given(
    dataset: Dataset,
) -> None:
    both = Dataset(dataset.store, dataset.name, dataset.digest, ["train", "test"])
    assert (
        both.read("train").to_pydict()
        == pa.concat_tables([dataset.read("train"), dataset.read("test")]).to_pydict()
    )
    assert dict(both.splits) == {"train": 6, "test": 2, "none": 0}
    assert both.read("test") == dataset.read("test")
    assert both.read() == dataset.read()  # every row once
    turned = Dataset(dataset.store, dataset.name, dataset.digest, ["test", "train"])
    assert turned.read("train")["label"].to_pylist() == list("ecadbf")
    assert pickle.loads(pickle.dumps(both)).shards("train") == both.shards("train")
    with pytest.raises(NotFound, match="no split 'valid'"):
        Dataset(dataset.store, dataset.name, dataset.digest, ["train", "valid"]).read("train")


def test_a_loader_of_several_splits_has_each_row_once_and_a_state_of_its_own(
    dataset: Dataset,
) -> None:
    both = Dataset(dataset.store, dataset.name, dataset.digest, ["train", "test"])

    def order(seed: int) -> list[str]:
        return [label for batch in both.loader("train", batch_size=4, seed=seed) for label in batch["label"]]

    assert sorted(order(0)) == list("abcdef")
    assert order(0) == order(0)
    assert [order(seed) for seed in range(5)] != [order(0)] * 5
    loader = both.loader("train", batch_size=2)
    state = loader.state_dict()
    assert state["split"] == "train+test"
    with pytest.raises(InvalidInput, match="split"):
        dataset.loader("train", batch_size=2).load_state_dict(state)


def test_train_and_validation_together_are_all_folds_whichever_fold_is_asked_for(
    store: Store,
) -> None:
    folds = {
        name: [put_shard(store, arrow_file(pa.table({"n": [number]})), 1)]
        for number, name in enumerate(["fold-0", "fold-1", "fold-2"])
    }
    folded = snapshot(store, {**folds, "test": [put_shard(store, arrow_file(pa.table({"n": [9]})), 1)]})
    both = Dataset(store, folded.name, folded.digest, ["train", "validation"])
    for fold in range(3):
        assert sorted(both.read("train", fold=fold)["n"].to_pylist()) == [0, 1, 2]
        assert both.read("validation", fold=fold)["n"].to_pylist() == [fold]
