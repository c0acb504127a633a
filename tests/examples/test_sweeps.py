"""The sweeps that come with the project are valid, and what they name exists."""

from pathlib import Path

import pytest

from halving.trial.import_string import import_function
from resources.sweep_spec.parsing import load_spec

SWEEPS = sorted((Path(__file__).parents[2] / "sweeps").glob("*.yaml"))


@pytest.mark.parametrize("path", SWEEPS, ids=[path.stem for path in SWEEPS])
def test_a_sweep_is_accepted_and_its_trainable_is_there(path: Path) -> None:
    assert import_function("trainable", load_spec(path).trainable)
