"""The examples run as the documentation has them: pictures from shards, and text."""

from pathlib import Path

import pytest

from tests.commands.shell import Shell


@pytest.mark.slow
@pytest.mark.parametrize(("sweep", "accuracy"), [("pictures", 0.9), ("docstrings", 0.3)])
def test_an_example_learns_and_its_winner_is_promoted(tmp_path: Path, sweep: str, accuracy: float) -> None:
    """Of ten digits each has a tenth; of eight packages none has more than a quarter of the docstrings."""
    shell = Shell(tmp_path)
    status, out, err = shell.call("sweep", f"sweeps/{sweep}.yaml")
    assert status == 0, out + err
    (model,) = shell.data("models", "list")["models"]
    assert (model["model"], model["stage"]) == (sweep, "champion")
    assert model["metrics"]["accuracy"] > accuracy
