"""Predictions in the store are what they were, and equal ones are one blob."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from halving import Store, StoreError
from resources.evaluation.measures import metric_on
from resources.evaluation.predictions import Predictions, read, sorted_classes, write


def labels(*values: Any) -> np.ndarray:
    held = np.empty(len(values), object)
    held[:] = values
    return held


@pytest.mark.parametrize(
    ("truth", "predicted"),
    [(("a", "b", "a"), ("a", "a", "c")), ((3, 1, 2), (3, 1, 1)), ((True, False, True), (False, False, True))],
)
def test_classes_come_back_in_their_own_type(tmp_path: Path, truth: Any, predicted: Any) -> None:
    store = Store(tmp_path)
    classes = sorted_classes(truth, predicted)
    for probabilities in (None, np.full((3, len(classes)), 1 / len(classes))):
        written = Predictions(labels(*truth), labels(*predicted), probabilities, classes=classes)
        loaded = read(store, write(store, written))
        assert loaded.classes == classes
        assert [type(label) for label in loaded.classes] == [type(label) for label in classes]
        assert loaded.target.tolist() == list(truth)  # type: ignore[union-attr]
        assert loaded.prediction.tolist() == list(predicted)  # type: ignore[union-attr]
        assert (loaded.probabilities is None) == (probabilities is None)
        assert metric_on(loaded, "accuracy", np.arange(3)) == metric_on(written, "accuracy", np.arange(3))


def test_numbers_and_an_evaluators_scores_come_back(tmp_path: Path) -> None:
    store = Store(tmp_path)
    loaded = read(store, write(store, Predictions(np.array([1.0, 2.0]), np.array([1.5, np.nan]))))
    assert loaded.classes is None
    np.testing.assert_array_equal(loaded.prediction, [1.5, np.nan])  # type: ignore[arg-type]
    scored = read(
        store,
        write(
            store,
            Predictions(None, None, scores={"ndcg": np.array([0.5, 1.0]), "loss": np.array([2.0, 4.0])}),
        ),
    )
    assert (scored.target, scored.rows) == (None, 2)
    assert metric_on(scored, "loss", np.array([1, 1, 0])) == pytest.approx(10 / 3)


def test_classes_that_are_read_are_objects_that_rows_share(tmp_path: Path) -> None:
    store = Store(tmp_path)
    truth = [f"class {number % 3}" for number in range(999)]
    loaded = read(
        store, write(store, Predictions(labels(*truth), labels(*truth), classes=sorted_classes(truth)))
    )
    assert loaded.target is not None
    assert loaded.target.tolist() == truth
    assert len(set(map(id, loaded.target))) == 3


def test_the_file_has_the_columns_that_others_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    digest = write(
        store,
        Predictions(
            labels("a", "b"), labels("a", "a"), np.array([[0.9, 0.1], [0.6, 0.4]]), classes=("a", "b")
        ),
    )
    table = pq.read_table(pa.BufferReader(store.get_blob(digest)))
    assert table.schema.names == ["row", "target", "prediction", "probability_a", "probability_b"]
    assert table.schema.field("row").type == pa.int64()
    assert table["row"].to_pylist() == [0, 1]


def test_groups_of_rows_come_back_whatever_was_predicted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    clusters = np.array([0, 0, 1])
    for written in (
        Predictions(
            labels("a", "b", "a"),
            labels("a", "a", "b"),
            np.full((3, 2), 0.5),
            classes=("a", "b"),
            clusters=clusters,
        ),
        Predictions(np.arange(3.0), np.ones(3), clusters=clusters),
        Predictions(None, None, scores={"ndcg": np.ones(3)}, clusters=clusters),
    ):
        loaded = read(store, write(store, written))
        np.testing.assert_array_equal(loaded.clusters, clusters)  # type: ignore[arg-type]
        assert list(loaded.scores) == list(written.scores)


def test_equal_predictions_are_one_blob(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, other = (write(store, Predictions(np.arange(9.0), np.ones(9))) for _ in range(2))
    assert first == other


def test_a_blob_of_something_else_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="holds no predictions"):
        read(store, store.put_blob(b"no parquet"))
