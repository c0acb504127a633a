"""Classes and baselines are those of the column itself, whether they were counted with the snapshot or
not.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import Dataset, Store
from resources.evaluation.diagnostics import baseline
from resources.evaluation.predictions import Predictions, sorted_classes
from resources.evaluation.target_classes import all_classes, class_counts
from tests.sdk.data.sharded import arrow_file, put_shard, snapshot

COLUMNS: list[pa.Array] = [
    pa.array(["a", "b", "a", None, "c"]),
    pa.array(["True", "1", "", "1", "ä"]),
    pa.array(["a", "b", "a", None, "c"], pa.large_string()),
    pa.array([1, -2, 1, None, 3]),
    pa.array([1, 2, 1, 255, 3], pa.uint8()),
    pa.array([True, False, True, None, True]),
    pa.array([None, "a", None, "a", "a"]),
]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def dataset_of(store: Store, column: pa.Array, statistics: dict[str, Any]) -> Dataset:
    tables = {"train": [column.slice(0, 2), column.slice(2, 2)], "test": [column.slice(4)]}
    shards = {
        split: [
            put_shard(store, arrow_file(pa.table({"x": [0.0] * len(part), "label": part})), len(part))
            for part in parts
        ]
        for split, parts in tables.items()
    }
    dataset = snapshot(store, shards)
    dataset.manifest.update(schema={"x": "double", "label": str(column.type)}, statistics=statistics)
    return dataset


def with_types(counts: Counter[Any]) -> set[tuple[type, Any, int]]:
    return {(type(value), value, rows) for value, rows in counts.items()}


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_classes_are_counted_in_their_own_type(
    store: Store, column: pa.Array, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = {
        "train": Counter(column[:4].drop_null().to_pylist()),
        "test": Counter(column[4:].drop_null().to_pylist()),
    }
    named = {
        split: {"label": {"classes": {str(value): rows for value, rows in part.items()}}}
        for split, part in parts.items()
    }
    dataset = dataset_of(
        store, column, named if counted else {split: {"label": {"classes": None}} for split in parts}
    )
    monkeypatch.delattr(Dataset, "read")
    if counted:
        monkeypatch.delattr(Dataset, "batches")
    assert with_types(class_counts(dataset, "train")) == with_types(parts["train"])
    assert sorted_classes(all_classes(dataset)) == sorted_classes(column.drop_null().to_pylist())


def test_a_baseline_of_classes_is_the_most_frequent_with_the_training_splits_shares(
    store: Store,
) -> None:
    dataset = dataset_of(store, COLUMNS[0], {})
    target = np.array(["a", "d"], object)
    _, predictions = baseline(dataset, Predictions(target, target, classes=("a", "d")))
    assert predictions.prediction is not None
    assert predictions.probabilities is not None
    assert (predictions.prediction.tolist(), predictions.classes) == (["a", "a"], ("a", "b", "d"))
    np.testing.assert_allclose(predictions.probabilities, [[2 / 3, 1 / 3, 0]] * 2)


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.decimal128(23, 2)], ids=str)
def test_a_baseline_of_numbers_is_their_mean_without_nulls(store: Store, kind: pa.DataType) -> None:
    dataset = dataset_of(store, pa.array([1, 2, 6, None, 100]).cast(kind), {})
    _, predictions = baseline(dataset, Predictions(np.zeros(3), np.zeros(3)))
    assert predictions.prediction is not None
    assert predictions.prediction.tolist() == [3.0] * 3
