"""The number of rows of each class, from a snapshot's statistics or by reading the column in batches."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from halving import Dataset
from resources.evaluation.columns import encode_arrow

_VALUES: dict[str, Callable[[str], Any]] = {"bool": "True".__eq__, "string": str, "large_string": str}


def class_counts(dataset: Dataset, split: str, fold: int | None = None) -> Counter[Any]:
    """Count the rows of each class of the target; rows without a target are left out."""
    kind = dataset.manifest["schema"][dataset.target]
    value_of = _VALUES.get(kind)
    if kind.startswith(("int", "uint")):
        value_of = int
    counted = [part.get(dataset.target, {}).get("classes") for part in dataset.statistics(split, fold)]
    counts: Counter[Any] = Counter()
    if value_of is not None and all(part is not None for part in counted):
        for name, rows in (pair for part in counted if part is not None for pair in part.items()):
            counts[value_of(name)] += rows
        return counts
    for batch in dataset.batches(split, columns=[dataset.target], fold=fold):
        column = encode_arrow(batch.column(0))
        numbers = np.bincount(column.codes, minlength=len(column.values)).tolist()
        counts.update(dict(zip(column.values, numbers, strict=True)))
    del counts[None]
    return counts


def all_classes(dataset: Dataset) -> list[Any]:
    """The target's values in all splits; the test split may lack some of them."""
    splits = sorted(dataset.manifest["splits"])
    return list(dict.fromkeys(value for name in splits for value in class_counts(dataset, name)))


__all__ = ["all_classes", "class_counts"]
