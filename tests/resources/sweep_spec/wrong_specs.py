"""Parts of specs that are wrong, and the check that each is refused with its reason."""

from typing import Any

import pytest

from halving import InvalidInput
from resources.sweep_spec import parse_spec

X = {"float": {"low": 0.0, "high": 1.0}}
KIND = {"categorical": ["adam", "sgd"]}
LATENCY = {"metric": "latency", "direction": "minimize"}


def space(**parameters: Any) -> dict[str, Any]:
    return {"space": parameters}


def strategy(**strategy: Any) -> dict[str, Any]:
    return {"strategy": strategy}


def objective(**changes: Any) -> dict[str, Any]:
    return {"objective": {"metric": "score", "direction": "maximize", **changes}}


def data_checks(**checks: Any) -> dict[str, Any]:
    return {
        "dataset": {"name": "points", "source": "tests.trainables:data", "target": "label", "checks": checks}
    }


def check_refusal(spec: dict[str, Any], parts: list[str]) -> None:
    """Check that a spec is refused for a single reason, whose message has these parts."""
    with pytest.raises(InvalidInput) as caught:
        parse_spec(spec)
    for part in parts:
        assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) == 2  # There is one problem, reported once.
