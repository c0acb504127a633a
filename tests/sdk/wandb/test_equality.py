"""What W&B records offline, imported, is what ``halving run --as-wandb`` records of the same scripts."""

from pathlib import Path

import pytest

from tests.sdk.wandb.both_ways import recorded, run_as_wandb, run_import, run_with_wandb
from tests.sdk.wandb.environments import frameworks_python

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wandb")]


@pytest.fixture(scope="session")
def python() -> Path:
    return frameworks_python()


@pytest.mark.parametrize(
    ("training", "passes"),
    [
        ("plain.py", [(), ("resume",)]),
        ("huggingface.py", [()]),
        ("lightning_line.py", [()]),
        ("accelerated.py", [()]),
        ("trl_sft.py", [()]),
        ("torchtune_loop.py", [()]),
    ],
)
def test_a_training_leaves_the_same_with_wandb_and_in_its_place(
    python: Path, tmp_path: Path, training: str, passes: list[tuple[str, ...]]
) -> None:
    theirs = str(tmp_path / "theirs-store")
    ours = str(tmp_path / "ours-store")
    for arguments in passes:
        run_with_wandb(python, training, tmp_path / "theirs", *arguments)
        run_import(tmp_path / "theirs", theirs)
        run_as_wandb(python, training, tmp_path / "ours", ours, *arguments)
    expected = recorded(theirs)
    runs = recorded(ours)
    assert list(runs.values()) == list(expected.values())
    (run,) = runs.values()
    assert run["ends"] == ["finished"] * len(passes)
    assert sum(map(len, run["points"].values())) > 10
