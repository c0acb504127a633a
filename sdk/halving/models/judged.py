"""The answers by which a model was judged, which its report names row by row, and whether others are the
same.

The report's predictions may be those of another machine, a GPU perhaps, whose sums differ in their last bits.
That the weights are the judged ones, and the code, is known to the last bit by their digests; what answers
are compared for is that the two belong together.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halving.errors import NotFound
from halving.store.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

# of the judged numbers' range, and of the rows whose class may be another: near ties fall either way
_SHARE = 0.01
_PROBABILITY = "probability_"


def judged_answers(store: Store, report: Mapping[str, Any]) -> "pa.Table | str":
    """What was predicted for the rows of the test split, in its order: ``prediction``, and
    ``probability_<class>``; or why it is unknown.

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
    return (
        table
        if "prediction" in table.column_names
        else "its report has scores of an evaluator, and no predictions"
    )


def difference(answers: Any, judged: "pa.Table") -> str | None:
    """Where answers to the first rows are not what was judged; None where they are.

    Args:
        answers: as JSON: a list of predictions, of lists of probabilities, or a dict of probabilities by
            class.
    """
    if isinstance(answers, dict):
        found = [
            _unlike(f"the probability of {name}", given, _column(judged, f"{_PROBABILITY}{name}"))
            for name, given in answers.items()
        ]
        return next(filter(None, found), None)
    if answers and isinstance(answers[0], list):
        names = [name for name in judged.column_names if name.startswith(_PROBABILITY)]
        if len(names) != len(answers[0]):
            return f"it gives {len(answers[0])} probabilities for each row, where {len(names)} were judged"
        columns = zip(*answers, strict=True)
        found = [
            _unlike(f"the {name}", given, _column(judged, name))
            for name, given in zip(names, columns, strict=True)
        ]
        return next(filter(None, found), None)
    return _unlike("the prediction", answers, _column(judged, "prediction"))


def _column(judged: "pa.Table", name: str) -> list[Any]:
    return (
        json.loads(json.dumps(judged.column(name).to_pylist(), default=str))
        if name in judged.column_names
        else []
    )


def _unlike(what: str, given: Sequence[Any], judged: Sequence[Any]) -> str | None:
    if len(judged) < len(given):
        return f"{what} of {len(given)} rows is given, where {len(judged)} were judged"
    expected = judged[: len(given)]
    if all(isinstance(value, float) for value in expected):
        finite = [value for value in judged if math.isfinite(value)]
        near = _SHARE * (max(finite, default=0.0) - min(finite, default=0.0))
        wrong = [row for row, both in enumerate(zip(given, expected, strict=True)) if not _close(*both, near)]
        allowed = 0
    else:
        wrong = [row for row, (one, other) in enumerate(zip(given, expected, strict=True)) if one != other]
        allowed = int(_SHARE * len(given))
    if len(wrong) <= allowed:
        return None
    row = wrong[0]
    rows = f"{len(wrong)} of {len(given)} rows differ"
    return f"{what} of row {row} is {given[row]!r}, where {expected[row]!r} was judged; {rows}"


def _close(one: Any, other: float, near: float) -> bool:
    if not isinstance(one, (int, float)):
        return False
    return math.isclose(one, other, rel_tol=1e-4, abs_tol=near) or (one != one and other != other)
