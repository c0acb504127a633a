"""The dataset of studies whose external loops read data of their own.

A sweep stands on a snapshot, so that its trials are comparable. Where loops read what they want, there is
nothing to take a snapshot of; such a study stands on this small one, which says so by its name.
"""

from collections.abc import Mapping
from typing import Any

NO_DATA: dict[str, Any] = {
    "name": "no-data",
    "source": {"sql": "SELECT number FROM range(30) AS numbers(number)"},
    "target": "number",
}


def names_no_data(spec: Mapping[str, Any]) -> bool:
    """Whether a spec names neither a dataset nor a snapshot, nor anything that would judge its winner."""
    names = ("dataset", "snapshot", "predictor", "evaluator")
    return all(spec.get(name) is None for name in names)
