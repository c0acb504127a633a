"""Slices against values worked out by hand."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from halving import InvalidInput
from resources.evaluation import slices
from resources.evaluation.predictions import Predictions
from resources.evaluation.slices import SMALL, check_slices, group_names, judge_slices

SCHEMA = {
    "age": "int64",
    "city": "string",
    "pixels": "fixed_size_list<item: float>[64]",
    "odd name": "double",
    "label": "string",
}


def right(*shares: tuple[int, int]) -> Predictions:
    """Rows of which the first so many of so many are right, group by group."""
    hits = np.concatenate([np.arange(rows) < hits for hits, rows in shares])
    truth = np.full(len(hits), "a", object)
    return Predictions(truth, np.where(hits, "a", "b").astype(object), classes=("a", "b"))


def test_groups_have_the_values_the_worst_and_the_differences_of_their_rows() -> None:
    table = pa.table({"city": ["Bonn"] * 40 + ["Kiel"] * 50 + ["Ulm"] * 5})
    (judged,) = judge_slices(
        ["city"], table, right((30, 40), (45, 50), (0, 5)), {"accuracy": True}, "accuracy"
    )
    values = {
        group["name"]: (group["rows"], group["small"], group["metrics"]["accuracy"]["value"])
        for group in judged["groups"]
    }
    assert values == {"Bonn": (40, False, 0.75), "Kiel": (50, False, 0.9), "Ulm": (5, True, 0.0)}
    assert judged["worst"] == "Bonn", "the small group is shown, and is not the worst"
    assert judged["difference"]["accuracy"] == pytest.approx(0.15)
    assert judged["ratio"]["accuracy"] == pytest.approx(0.75 / 0.9)
    low, high = (judged["groups"][0]["metrics"]["accuracy"][end] for end in ("low", "high"))
    assert low < 0.75 < high


def test_a_condition_divides_rows_and_one_without_a_value_does_not_meet_it() -> None:
    table = pa.table({"age": [70] * SMALL + [20] * SMALL + [None] * SMALL})
    (judged,) = judge_slices(["age >= 65"], table, right((30, 30), (0, 60)), {"accuracy": True}, "accuracy")
    assert {group["name"]: group["rows"] for group in judged["groups"]} == {
        "age >= 65": SMALL,
        "not (age >= 65)": 2 * SMALL,
    }
    assert judged["worst"] == "not (age >= 65)"


def test_a_condition_names_columns_in_quotes() -> None:
    table = pa.table({"capital gain": [7] * SMALL + [0] * SMALL, "class": ["a"] * 2 * SMALL})
    condition = """columns["capital gain"] > 0 and columns['class'] == 'a'"""
    check_slices([condition], {"capital gain": "int64", "class": "string"})
    (judged,) = judge_slices([condition], table, right((30, 30), (0, 30)), {"accuracy": True}, "accuracy")
    assert {group["name"]: group["rows"] for group in judged["groups"]} == {
        condition: SMALL,
        f"not ({condition})": SMALL,
    }


def test_of_an_error_the_largest_is_the_worst() -> None:
    truth = np.zeros(80)
    predicted = np.r_[np.ones(40), np.full(40, 3.0)]
    table = pa.table({"part": [1] * 40 + [2] * 40})
    (judged,) = judge_slices(["part"], table, Predictions(truth, predicted), {"rmse": False}, "rmse")
    assert (judged["worst"], judged["difference"]["rmse"]) == ("2", pytest.approx(2.0))


def test_values_that_are_not_all_positive_have_no_ratio() -> None:
    predictions = Predictions(np.zeros(80), np.r_[np.ones(40), np.full(40, 3.0)])
    metrics = {"rmse": False, "neg_mean_absolute_error": True}
    (judged,) = judge_slices(["part"], pa.table({"part": [1] * 40 + [2] * 40}), predictions, metrics, "rmse")
    assert judged["ratio"] == {"rmse": pytest.approx(1 / 3)}
    assert judged["difference"]["neg_mean_absolute_error"] == pytest.approx(2.0)


def test_rows_without_a_value_are_a_group_and_numbers_are_in_their_order() -> None:
    table = pa.table({"part": [10, 2, None, 2]})
    (judged,) = judge_slices(["part"], table, right((4, 4)), {"accuracy": True}, "accuracy")
    assert [group["name"] for group in judged["groups"]] == ["2", "10", "(none)"]
    assert (judged["worst"], judged["difference"]) == (None, {}), "all of them are small"


def test_a_metric_without_a_value_on_a_group_is_nan_there_and_not_the_worst() -> None:
    table = pa.table({"part": ["p"] * 40 + ["q"] * 40})
    truth = np.array((["a"] * 40) + (["a", "b"] * 20), object)
    predictions = Predictions(truth, truth, np.tile([0.5, 0.5], (80, 1)), classes=("a", "b"))
    (judged,) = judge_slices(["part"], table, predictions, {"roc_auc": True}, "roc_auc")
    assert math.isnan(judged["groups"][0]["metrics"]["roc_auc"]["value"])
    assert judged["worst"] == "q"


@pytest.mark.parametrize(
    ("column", "condition", "names"),
    [
        (pa.array(["a", "b", "a", None, ""]), "c", ["a", "b", "a", "(none)", ""]),
        (pa.array([1, 2, 1, None, -3]), "c", ["1", "2", "1", "(none)", "-3"]),
        (pa.array([True, False, None, True, True]), "c", ["True", "False", "(none)", "True", "True"]),
        (pa.array([0.5, math.nan, math.nan, None, 1.0]), "c", ["0.5", "nan", "nan", "(none)", "1.0"]),
        (pa.array(["a", "b", "a", None, ""]).dictionary_encode(), "c", ["a", "b", "a", "(none)", ""]),
        (pa.nulls(5), "c", ["(none)"] * 5),
        (pa.array(["a", "b", "a", None, ""]), "c == 'a'", [True, False, True, False, False]),
        (pa.array([1, 2, 1, None, -3]), "c >= 1", [True, True, True, False, False]),
        (pa.array([0.5, math.nan, math.nan, None, 1.0]), "c < 1", [True, False, False, False, False]),
        (pa.array([1, 2, 1, None, -3]), "c >= 1 and d < 2", [True, True, False, False, False]),
    ],
    ids=str,
)
@pytest.mark.parametrize("chunks", [[5], [2, 3], [1, 0, 1, 1, 2]])
def test_rows_have_the_same_groups_however_they_lie(
    column: pa.Array, condition: str, names: list[Any], chunks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "_AT_ONCE", 2)
    starts = np.cumsum([0, *chunks])[:-1].tolist()
    parts = [column.slice(start, rows) for start, rows in zip(starts, chunks, strict=True)]
    table = pa.table({"c": pa.chunked_array(parts), "d": pa.array(range(5))})
    by_truth = {True: condition, False: f"not ({condition})"}
    expected = [name if isinstance(name, str) else by_truth[name] for name in names]
    assert group_names(condition, table).tolist() == expected


def test_a_slice_that_cannot_be_judged_says_why_beside_the_others() -> None:
    table = pa.table({"age": list(range(80)), "city": ["Bonn"] * 80})
    ages, texts, cities = judge_slices(
        ["age", "city > 3", "city"], table, right((80, 80)), {"accuracy": True}, "accuracy"
    )
    assert "has 80 values in these rows, more than 50; give a condition" in ages["error"]
    assert "compare numbers with numbers" in texts["error"]
    assert cities["groups"][0]["rows"] == 80


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        (
            "agee",
            (
                "slices.0 = 'agee' is not accepted: the snapshot has no column 'agee', did you mean "
                "'age'?; it "
                "has age, city"
            ),
        ),
        ("height > 3 and age > 2", "the snapshot has no column 'height'"),
        ("pixels", "the column 'pixels' is of type fixed_size_list"),
    ],
)
def test_a_slice_by_what_is_no_column_is_refused_before_anything_runs(condition: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said.replace("?", r"\?")):
        check_slices([condition], SCHEMA)
    check_slices(["age", "city == 'Bonn' or age < 3", "odd name", "label"], SCHEMA)
