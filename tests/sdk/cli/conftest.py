"""Fixtures of the commands' tests: a store with runs of all kinds, and commands on it."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

import halving
from halving import Store
from halving.cli.main import main
from tests.sdk.cli.command_output import Halving, Output


@pytest.fixture
def command(store: Store, capfd: pytest.CaptureFixture[str]) -> Halving:
    """Run a command on the test's store."""

    def run(name: str, *arguments: str) -> Output:
        status = main([name, "--root", store.root, *arguments])
        out, err = capfd.readouterr()
        return Output(status, out, err)

    return run


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with five runs of two projects: finished, resumed, failed, with values that are not finite, and
    crashed.
    """
    folder = tmp_path_factory.mktemp("prepared")
    root = folder / "store"
    for number, lr in enumerate((0.1, 0.01)):
        params = {"lr": lr, "optim": {"name": "adam"}}
        run = halving.init(
            "digits",
            params,
            root,
            id=f"base-{number}",
            tags={"kind": f"k{number}"},
            seed=5,
            system_metrics=None,
        )
        for step in range(4):
            run.log({"loss": lr / (step + 1), "val": {"acc": step / 4}}, step=step)
        if number == 0:
            run.log({"sample": halving.Image(np.zeros((2, 2)))}, step=3)
            (folder / "notes.txt").write_text("hello")
            run.log_artifact(folder / "notes.txt")
            run.save(weight=1)
        run.finish("finished" if number == 0 else "failed")
    run = halving.init("digits", {"lr": 0.5}, root, id="odd", system_metrics=None)
    run.log({"loss": math.nan, "up": math.inf, "down": -math.inf}, step=0)
    run.finish()
    for status, steps in (("paused", range(6)), ("finished", range(3, 8))):
        run = halving.init("text", {}, root, id="resumed", system_metrics=None)
        for step in steps:
            run.log({"loss": step + (0.5 if status == "finished" else 0.0)}, step=step)
        run.finish(status)
    run = halving.init("text", {}, root, id="killed", system_metrics=None)
    run.log({"loss": 3.0}, step=0)
    assert run.flush(30)
    run.log({"loss": 2.0}, step=1)
    killed = shutil.copytree(root, folder / "killed")  # what a kill at this moment would leave
    run.finish()
    return killed


@pytest.fixture
def filled(prepared: Path, store: Store) -> Store:
    """A copy of it that is this test's own."""
    shutil.copytree(prepared, store.root)
    return store
