"""A loader refuses when it is opened what it could not read, and states of another order of rows."""

from typing import Any

import pyarrow as pa
import pytest

from halving import Dataset, InvalidInput, NotFound, Store
from tests.sdk.data.sharded import (
    arrow_file,
    counting_tables,
    flat,
    numbers,
    put_shard,
    sharded_dataset,
    snapshot,
)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "batch_size = 0 is not accepted: give a whole number of at least 1"),
        ({"batch_size": 8.0}, r"batch_size = 8\.0"),
        ({"batch_size": True}, "batch_size = True"),
        ({"batch_size": 8, "lanes": 0}, "lanes = 0"),
        ({"batch_size": 8, "seed": -1}, "seed = -1"),
        ({"batch_size": 8, "epoch": 0}, "epoch = 0"),
        ({"batch_size": 8, "shuffle": False, "lanes": 2}, "lanes = 2 with shuffle=False"),
        ({"batch_size": 8, "columns": "n"}, "columns = 'n' is not accepted: give a list"),
        (
            {"batch_size": 8, "columns": ["m"]},
            "columns = 'm' is not accepted: split 'train' of dataset points has n",
        ),
        ({"batch_size": 8, "rank": 1}, "rank = 1 with world_size = None"),
        ({"batch_size": 8, "rank": 2, "world_size": 2}, "rank = 2 with world_size = 2"),
        (
            {"batch_size": 7, "rank": 0, "world_size": 8},
            "batch_size = 7 .* each of 8 ranks needs a row of it; give at least 8",
        ),
        (
            {"batch_size": 9, "rank": 0, "world_size": 8},
            "leaves 2 for the last one, .* 8 ranks; give drop_last=True, or .* at least 16",
        ),
        ({"batch_size": 201, "drop_last": True}, "has 200 rows: not one batch for 1 ranks"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_a_value_that_makes_no_sense_is_named_with_what_does(
    datasets: dict[str, Dataset], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        datasets["four shards"].loader("train", **arguments)


NO_VALUE = (
    "for which NumPy has no value: fill them in transform=…, which is given Arrow, or in the dataset's "
    "transform, or leave the column out"
)
WITHIN = (
    "within its lists, which a loader does not read: fill them in the dataset's transform, or leave the "
    "column out by columns=[…]"
)


def last_of(values: list[Any], kind: pa.DataType) -> pa.Table:
    """60 rows, of which the last have these values, and the others the first of them."""
    return pa.table({"n": range(60), "x": pa.array([values[0]] * (60 - len(values)) + values, kind)})


@pytest.mark.parametrize(
    ("values", "kind", "refusal"),
    [
        ([1, None], pa.int64(), "is of type int64 and has 1 null, " + NO_VALUE),
        ([1, None, 2, None], pa.uint8(), "is of type uint8 and has 2 nulls, " + NO_VALUE),
        ([True, None], pa.bool_(), "is of type bool and has 1 null, " + NO_VALUE),
        ([3, None], pa.date32(), "is of type date32[day] and has 1 null, " + NO_VALUE),
        ([3, None], pa.time32("s"), "is of type time32[s] and has 1 null, " + NO_VALUE),
        ([3, None], pa.time64("us"), "is of type time64[us] and has 1 null, " + NO_VALUE),
        ([b"abcd", None], pa.binary(4), "is of type fixed_size_binary[4] and has 1 null, " + NO_VALUE),
        (
            [[1, 2], None],
            pa.list_(pa.int16(), 2),
            "is of type fixed_size_list<item: int16>[2] and has 1 null, " + NO_VALUE,
        ),
        ([[1], [1, None]], pa.list_(pa.int64()), "is of type list<item: int64> and has 1 null " + WITHIN),
        (
            [[1.0], [None, None]],
            pa.large_list(pa.float64()),
            "is of type large_list<item: double> and has 2 nulls " + WITHIN,
        ),
        (
            [[1.0, 2.0], [None, 1.0]],
            pa.list_(pa.float32(), 2),
            "is of type fixed_size_list<item: float>[2] and has 1 null " + WITHIN,
        ),
        ([[[1], [2]], [None, [3]]], pa.list_(pa.list_(pa.int8(), 1), 2), "[2] and has 1 null " + WITHIN),
    ],
)
@pytest.mark.parametrize("with_transform", [False, True])
def test_a_null_that_a_batch_could_not_have_is_refused_when_the_loader_is_opened(
    store: Store, values: list[Any], kind: pa.DataType, refusal: str, with_transform: bool
) -> None:
    table = last_of(values, kind)
    dataset = sharded_dataset(store, table[:30], table[30:])
    if with_transform and WITHIN not in refusal:
        rows = list(dataset.loader("train", batch_size=16, transform=lambda rows: rows))
        assert pa.Table.from_batches(rows).sort_by("n") == table
    else:
        with pytest.raises(InvalidInput) as raised:
            dataset.loader("train", batch_size=16, transform=(lambda rows: rows) if with_transform else None)
        assert str(raised.value).startswith("column 'x' of split 'train' of dataset points is of type ")
        assert refusal in str(raised.value)
    assert sorted(flat(numbers(dataset.loader("train", batch_size=16, columns=["n"])))) == list(range(60))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.5, None, float("nan")], pa.float64()),
        ([0.5, None], pa.float16()),
        ([7, None], pa.timestamp("us", "UTC")),
        ([7, None], pa.duration("s")),
        ([7, None], pa.date64()),
        (["a", None], pa.string()),
        ([b"a", None], pa.large_binary()),
        ([[1], None, []], pa.list_(pa.int64())),
        ([[1.0, 2.0], None], pa.list_(pa.float32(), 2)),
        ([1, 2], pa.int64()),
        ([[1], [float("nan")]], pa.list_(pa.float64())),
    ],
)
def test_a_null_that_has_a_value_in_numpy_is_read(store: Store, values: list[Any], kind: pa.DataType) -> None:
    table = last_of(values, kind)
    dataset = sharded_dataset(store, table[:30], table[30:])
    assert sorted(flat(numbers(dataset.loader("train", batch_size=16)))) == list(range(60))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([["a"]], pa.list_(pa.string())),
        ([{"a": 1}], pa.struct({"a": pa.int64()})),
        ([[{"a": 1}]], pa.list_(pa.struct({"a": pa.int64()}))),
        ([1], pa.decimal128(5)),
        ([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        ([[[1]]], pa.list_(pa.list_(pa.int64()))),
    ],
)
def test_a_column_of_a_type_that_is_not_read_is_refused_when_the_loader_is_opened(
    store: Store, values: list[Any], kind: pa.DataType
) -> None:
    dataset = sharded_dataset(store, last_of(values, kind))
    message = (
        "column 'x' of split 'train' of dataset points is of type .*, or give it another form in the "
        "dataset's transform"
    )
    with pytest.raises(InvalidInput, match=message):
        dataset.loader("train", batch_size=16)
    assert sorted(flat(numbers(dataset.loader("train", batch_size=16, columns=["n"])))) == list(range(60))


def test_only_nulls_of_the_splits_that_are_read_refuse_a_loader(store: Store) -> None:
    whole, holed = (
        put_shard(store, arrow_file(last_of(values, pa.int64())), 60) for values in ([1, 2], [1, None])
    )
    dataset = snapshot(store, {"train": [whole], "validation": [holed], "test": [whole]})
    assert len(list(dataset.loader("train", batch_size=16))) == 4
    with pytest.raises(
        InvalidInput,
        match="column 'x' of split 'validation' of dataset points is of type int64 and has 1 null, ",
    ):
        dataset.loader("validation", batch_size=16)
    both = Dataset(store, dataset.name, dataset.digest, train_on=("train", "validation"))
    with pytest.raises(
        InvalidInput,
        match=r"column 'x' of split 'train\+validation' of dataset points is of type int64 and has 1 null, ",
    ):
        both.loader("train", batch_size=16)
    folded = snapshot(store, {"fold-0": [whole], "fold-1": [holed], "test": [holed]}, "folded")
    assert len(list(folded.loader("validation", batch_size=16, fold=0))) == 4
    assert len(list(folded.loader("train", batch_size=16, fold=1))) == 4
    for split, fold in (("train", 0), ("validation", 1), ("test", None)):
        with pytest.raises(
            InvalidInput,
            match=f"column 'x' of split '{split}.* of dataset folded is of type int64 and has 1 null, ",
        ):
            folded.loader(split, batch_size=16, fold=fold)


def test_a_text_that_is_not_utf_8_is_named_by_its_column(store: Store) -> None:
    table = pa.table({"n": range(2), "x": pa.array([b"a", b"caf\xe9"]).view(pa.string())})
    loader = sharded_dataset(store, table).loader("train", batch_size=2)
    with pytest.raises(
        InvalidInput,
        match=r"column 'x' of type string has b'caf\\xe9', which is not UTF-8: make it text or binary in",
    ):
        list(loader)
    (rows,) = sharded_dataset(store, table).loader("train", batch_size=2, transform=lambda rows: rows)
    assert rows["x"].view(pa.binary()).to_pylist() == [b"a", b"caf\xe9"]


def test_an_empty_split_and_one_that_is_not_there_are_refused(dataset: Dataset) -> None:
    with pytest.raises(InvalidInput, match="split 'none' of dataset points is empty"):
        dataset.loader("none", batch_size=8)
    with pytest.raises(NotFound, match=r"dataset points has no split 'valid'; it has \['none', 'train'\]"):
        dataset.loader("valid", batch_size=8)


@pytest.mark.parametrize("changed", ["digest", "split", "seed", "shuffle", "lanes"])
def test_a_state_of_another_order_is_refused_and_changes_nothing(store: Store, changed: str) -> None:
    shards = [put_shard(store, arrow_file(table), table.num_rows) for table in counting_tables(50, 50)]
    dataset = snapshot(store, {"train": shards, "test": shards[:1]})
    loader = dataset.loader("train", batch_size=16)
    other = {
        "digest": lambda: snapshot(store, {"train": shards[:1]}, "points").loader("train", batch_size=16),
        "split": lambda: dataset.loader("test", batch_size=16),
        "seed": lambda: dataset.loader("train", batch_size=16, seed=1),
        "shuffle": lambda: dataset.loader("train", batch_size=16, shuffle=False),
        "lanes": lambda: dataset.loader("train", batch_size=16, lanes=2),
    }[changed]()
    before = loader.state_dict()
    with pytest.raises(
        InvalidInput, match=f"the state of a loader with {changed} = .* is not accepted for split 'train'"
    ):
        loader.load_state_dict({**other.state_dict(), "position": 7})
    assert loader.state_dict() == before
    with pytest.raises(InvalidInput, match="the state of a loader without 'epoch'"):
        loader.load_state_dict({})
    with pytest.raises(
        InvalidInput, match="position = 101 is not accepted: split 'train' of dataset points has 100 rows"
    ):
        loader.load_state_dict({**before, "position": 101})
    assert loader.state_dict() == before
