"""Compares answers with those by which a model was judged, which its report has row by row.

The report's predictions may come from another machine, perhaps with a GPU, whose sums differ in their last
bits. Digests prove that the weights and the code are the judged ones. Answers are compared to see that the
two belong together.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halving.errors import NotFound
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

# How much numbers may differ, as a share of the judged numbers' range, and how many rows may have another
# class, because near ties fall either way.
_SHARE = 0.01
_PROBABILITY = "probability_"


def judged_answers(store: Store, report: Mapping[str, Any]) -> "pa.Table | str":
    """Read what was predicted for the rows of the test split, in its order, or say why it is unknown.

    The columns are ``prediction``, and ``probability_<class>``.

    Raises:
        StoreError: the predictions are damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    digest = report.get("predictions")
    if digest is None:
        return "its report has no predictions by row"
    try:
        table = pq.read_table(pa.BufferReader(store.get_blob(digest)))
    except NotFound:
        return "the predictions of its report are gone from the store"
    if "prediction" not in table.column_names:
        return "its report has scores of an evaluator, and no predictions"
    return table


def difference(answers: Any, judged: "pa.Table") -> str | None:
    """Describe where answers to the first rows differ from those that were judged; None if they do not.

    Args:
        answers: as JSON: a list of predictions, a list of lists of probabilities, or a dict of probabilities
            by class.
    """
    if isinstance(answers, dict):
        mismatches = [
            _find_mismatch(f"the probability of {name}", column, _column(judged, f"{_PROBABILITY}{name}"))
            for name, column in answers.items()
        ]
        return next(filter(None, mismatches), None)
    if answers and isinstance(answers[0], list):
        names = [name for name in judged.column_names if name.startswith(_PROBABILITY)]
        if len(names) != len(answers[0]):
            return f"it gives {len(answers[0])} probabilities for each row, where {len(names)} were judged"
        columns = zip(*answers, strict=True)
        mismatches = [
            _find_mismatch(f"the {name}", column, _column(judged, name))
            for name, column in zip(names, columns, strict=True)
        ]
        return next(filter(None, mismatches), None)
    return _find_mismatch("the prediction", answers, _column(judged, "prediction"))


def _column(judged: "pa.Table", name: str) -> list[Any]:
    if name not in judged.column_names:
        return []
    column: list[Any] = json.loads(json.dumps(judged.column(name).to_pylist(), default=str))
    return column


def _find_mismatch(subject: str, answers: Sequence[Any], judged: Sequence[Any]) -> str | None:
    if len(judged) < len(answers):
        return f"{subject} of {len(answers)} rows is given, where {len(judged)} were judged"
    expected = judged[: len(answers)]
    pairs = list(enumerate(zip(answers, expected, strict=True)))
    if all(isinstance(value, float) for value in expected):
        finite = [value for value in judged if math.isfinite(value)]
        near = _SHARE * (max(finite, default=0.0) - min(finite, default=0.0))
        wrong = [row for row, pair in pairs if not _is_close(*pair, near)]
        max_wrong = 0
    else:
        wrong = [row for row, (answer, expectation) in pairs if answer != expectation]
        max_wrong = int(_SHARE * len(answers))
    if len(wrong) <= max_wrong:
        return None
    row = wrong[0]
    rows = f"{len(wrong)} of {len(answers)} rows differ"
    return f"{subject} of row {row} is {answers[row]!r}, where {expected[row]!r} was judged; {rows}"


def _is_close(answer: Any, expected: float, near: float) -> bool:
    if not isinstance(answer, (int, float)):
        return False
    are_nan = answer != answer and expected != expected
    return are_nan or math.isclose(answer, expected, rel_tol=1e-4, abs_tol=near)
