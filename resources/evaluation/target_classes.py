"""How many rows of a split are of each class: as it was counted when the snapshot was taken, or else by
reading the column in batches.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from halving import Dataset
from resources.evaluation.columns import coded_arrow

_VALUES: dict[str, Callable[[str], Any]] = {"bool": "True".__eq__, "string": str, "large_string": str}


def class_counts(dataset: Dataset, split: str, fold: int | None = None) -> Counter[Any]:
    """The rows of each class of the target, without those that have none."""
    kind = dataset.manifest["schema"][dataset.target]
    value_of = int if kind.startswith(("int", "uint")) else _VALUES.get(kind)
    counted = [part.get(dataset.target, {}).get("classes") for part in dataset.statistics(split, fold)]
    counts: Counter[Any] = Counter()
    if value_of is not None and all(part is not None for part in counted):
        for name, rows in (pair for part in counted if part is not None for pair in part.items()):
            counts[value_of(name)] += rows
        return counts
    for batch in dataset.batches(split, columns=[dataset.target], fold=fold):
        column = coded_arrow(batch.column(0))
        counts.update(
            dict(
                zip(
                    column.values,
                    np.bincount(column.codes, minlength=len(column.values)).tolist(),
                    strict=True,
                )
            )
        )
    del counts[None]
    return counts


def all_classes(dataset: Dataset) -> list[Any]:
    """The target's values in all splits: rarely all of them are in the test split."""
    return list(
        dict.fromkeys(
            value for name in sorted(dataset.manifest["splits"]) for value in class_counts(dataset, name)
        )
    )


__all__ = ["all_classes", "class_counts"]
