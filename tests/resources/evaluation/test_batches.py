"""A predictor that is asked batch by batch gives what one call over all rows gives."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from resources.evaluation import predictor_process
from resources.evaluation.columns import encode
from resources.evaluation.held_out import HeldOut
from resources.evaluation.predicted import Predicted
from resources.evaluation.predictions import Predictions
from resources.evaluation.predictor_calls import PredictionFailed
from resources.evaluation.predictor_messages import Answer, Done, Failed, from_bytes, to_bytes
from resources.evaluation.predictor_process import Question, messages

AT_ONCE = 7

Returned = Callable[[np.ndarray], Any]


class BatchPredictor:
    """A predictor of row numbers, and the rows of each of its calls."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, returned: Returned) -> None:
        self.calls: list[int] = []
        self._folder = folder
        self._patch = monkeypatch
        self._returned = returned
        monkeypatch.setattr(predictor_process, "import_function", lambda field, function: self._predict)

    def predictions(
        self, truth: list[Any] | np.ndarray, at_once: int = AT_ONCE, lying: int = 5
    ) -> Predictions:
        """What it says of rows that lie in record batches of so many."""
        self.calls.clear()
        self._patch.setattr(predictor_process, "_MAX_ROWS", at_once)
        table = pa.table({"row": np.arange(len(truth))})
        file = self._folder / "rows.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=lying)
        numbers = isinstance(truth, np.ndarray)
        question = Question(
            "predictor",
            "m:f",
            str(self._folder),
            ("points", "sha256:none", ("train",)),
            {},
            "",
            "test",
            str(file),
            0.0,
            2,
            numbers,
        )
        target = truth
        if not isinstance(truth, np.ndarray):
            target = encode(truth)
        predicted = Predicted(HeldOut(SimpleNamespace(target="y"), len(truth), numbers, [], target), "m:f")  # type: ignore[arg-type]
        for message in messages(question, serving=False):
            match from_bytes(to_bytes(message)):
                case Answer() as answer:
                    predicted.add(answer)
                case Failed(reason):
                    raise PredictionFailed(reason)
                case other:
                    assert other == Done(len(truth))
        return predicted.predictions()

    def _predict(self, run: Any, table: pa.Table) -> Any:
        self.calls.append(table.num_rows)
        return self._returned(table["row"].to_numpy())


@pytest.fixture
def make_predictor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Returned], BatchPredictor]:
    return lambda returned: BatchPredictor(tmp_path, monkeypatch, returned)


def shares(rows: np.ndarray) -> np.ndarray:
    first = (rows % 5) / 5
    return np.column_stack([first, 1 - first])


def swapped_shares(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Its keys are in another order in every other batch."""
    a, b = shares(rows).T
    if rows[0] % 2 == 0:
        return {"a": a, "b": b}
    return {"b": b, "a": a}


def repeat_values(values: list[Any] | np.ndarray, rows: int) -> list[Any] | np.ndarray:
    """The values, over and over, for so many rows."""
    if isinstance(values, np.ndarray):
        return np.resize(values, rows)
    return [values[row % 2] for row in range(rows)]


TEXTS = ["a", "b"]
RETURNED: dict[str, tuple[Any, Returned]] = {
    "texts": (TEXTS, lambda rows: ["ab"[row % 2] for row in rows.tolist()]),
    "numpy's texts": (TEXTS, lambda rows: np.array(["a", "b"])[rows % 2]),
    "arrow's texts": (TEXTS, lambda rows: pa.array(["ab"[row % 2] for row in rows.tolist()])),
    "integers": ([0, 1], lambda rows: rows % 2),
    "a list of numpy's integers": ([0, 1], lambda rows: list(rows % 2)),
    "booleans": ([True, False], lambda rows: rows % 3 == 0),
    "a class that comes late": (TEXTS, lambda rows: ["z" if row == 15 else "a" for row in rows.tolist()]),
    "named probabilities": (TEXTS, swapped_shares),
    "floats": (np.ones(2), lambda rows: rows / 3),
    "integers for a number": (np.ones(2), lambda rows: rows * 3),
    "NaN in the second batch": (np.ones(2), lambda rows: np.where(rows == 9, math.nan, rows)),
    "None in the second batch": (
        np.ones(2),
        lambda rows: [None if row == 9 else 0.5 for row in rows.tolist()],
    ),
    "texts for a number": (np.ones(2), lambda rows: ["a" if row == 9 else row for row in rows.tolist()]),
    "half precision": (np.ones(2), lambda rows: (rows / 3).astype(np.float16)),
}


@pytest.mark.parametrize("rows", [1, AT_ONCE, AT_ONCE + 1, 3 * AT_ONCE])
@pytest.mark.parametrize("kind", RETURNED)
def test_batches_give_what_one_call_gives(
    make_predictor: Callable[[Returned], BatchPredictor], kind: str, rows: int
) -> None:
    target, returned = RETURNED[kind]
    truth = repeat_values(target, rows)
    predictor = make_predictor(returned)
    whole = predictor.predictions(truth, at_once=1_000)
    assert predictor.calls == [rows]
    parts = predictor.predictions(truth)
    assert predictor.calls == [AT_ONCE] * (rows // AT_ONCE) + [rows % AT_ONCE] * (rows % AT_ONCE > 0)
    assert parts.classes == whole.classes
    assert whole.prediction is not None
    assert parts.prediction is not None
    assert str(parts.prediction.tolist()) == str(whole.prediction.tolist())
    assert (parts.probabilities is None) == (whole.probabilities is None)
    if parts.probabilities is not None:
        np.testing.assert_array_equal(parts.probabilities, whole.probabilities)


@pytest.mark.parametrize(
    ("truth", "returned", "said", "calls"),
    [
        (
            TEXTS,
            lambda rows: ["a"] * (3 if rows[0] else len(rows)),
            r"returned 3 predictions for 7 rows \(rows 7 to 13\)",
            2,
        ),
        (TEXTS, lambda rows: ["a"], "returned 1 predictions for 7 rows; return one a row", 1),
        (
            TEXTS,
            lambda rows: swapped_shares(rows) if not rows[0] else ["a"] * 7,
            "probabilities for the first rows and classes for rows 7",
            2,
        ),
        (TEXTS, lambda rows: [1] * 7, r"returned \['int'\] where the column 'y' holds \['str'\]", 1),
        ([1, 2], lambda rows: ["1"] * 7, r"returned \['str'\] where the column 'y' holds \['int'\]", 1),
        ([1, 2], lambda rows: rows / 2, r"returned \['float'\] where the column 'y' holds \['int'\]", 1),
        (
            [True, False],
            lambda rows: rows % 2,
            r"returned \['int'\] where the column 'y' holds \['bool'\]",
            1,
        ),
        (
            TEXTS,
            lambda rows: {"a": rows * 0 + 0.5, "b" if rows[0] < 9 else "c": rows * 0 + 0.5},
            "other classes than for the rows",
            3,
        ),
        (
            TEXTS,
            lambda rows: {"a": rows * 0 + 1.0, "b": (rows == 9) * 1.0},
            "the probabilities of row 9 sum to 2",
            2,
        ),
        (np.ones(2), lambda rows: shares(rows), "the target is a number, which has no probabilities", 1),
        (
            TEXTS,
            lambda rows: [1 / (9 - row) for row in rows.tolist()],
            "raised ZeroDivisionError|returned",
            1,
        ),
    ],
)
def test_what_is_wrong_is_refused_at_its_batch(
    make_predictor: Callable[[Returned], BatchPredictor],
    truth: Any,
    returned: Returned,
    said: str,
    calls: int,
) -> None:
    predictor = make_predictor(returned)
    with pytest.raises(PredictionFailed, match=said):
        predictor.predictions(repeat_values(truth, 21))
    assert len(predictor.calls) == calls


@pytest.mark.parametrize("lying", [1, 2, 5, 21])
def test_a_batch_has_at_most_so_many_bytes_but_for_a_single_larger_row(
    make_predictor: Callable[[Returned], BatchPredictor], lying: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictor_process, "_MAX_BYTES", 16)
    predictor = make_predictor(lambda rows: ["a"] * len(rows))
    predictor.predictions(["a"] * 21, at_once=1_000, lying=lying)
    assert sum(predictor.calls) == 21
    assert max(predictor.calls) <= 2
    monkeypatch.setattr(predictor_process, "_MAX_BYTES", 4)
    predictor.predictions(["a"] * 21, at_once=1_000, lying=lying)
    assert predictor.calls == [1] * 21
