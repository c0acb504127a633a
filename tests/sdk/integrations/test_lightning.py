"""Lightning's Trainer with Halving's logger: real fits on the CPU."""

import argparse
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only

import halving
from halving import AlreadyExists, InvalidInput, Store
from halving.integrations.lightning import HalvingLogger
from tests.sdk.integrations import lightning_trainings
from tests.sdk.integrations.conftest import StoredRuns
from tests.sdk.integrations.lightning_trainings import BATCHES, Line, trainer

pytestmark = [
    # Lightning's own advice to its users, and its use of torch.
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore:.*isinstance.treespec, LeafSpec.*:FutureWarning"),
]


def test_a_fit_leaves_params_and_every_point_and_ends_finished(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    logger = HalvingLogger("p", root=store.root, config={"note": "x"}, tags={"team": "vision"})
    fit = trainer(logger, tmp_path)
    fit.fit(Line(lr=0.05))
    assert stored_runs.runs() == [logger.version]
    assert stored_runs.params(logger.version) == {"lr": 0.05, "note": "x"}
    points = stored_runs.points(logger.version)
    assert set(points) == {"train/loss", "val/loss", "epoch"}
    assert list(points["train/loss"]) == list(range(2 * BATCHES))
    assert list(points["val/loss"]) == [BATCHES - 1, 2 * BATCHES - 1]
    assert points["train/loss"][2 * BATCHES - 1] == float(fit.logged_metrics["train/loss"])
    assert points["val/loss"][2 * BATCHES - 1] == float(fit.logged_metrics["val/loss"])
    assert stored_runs.ends(logger.version) == ["finished"]


def test_a_fit_that_fails_ends_failed_with_its_points(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    logger = HalvingLogger("p", root=store.root)
    with pytest.raises(ArithmeticError, match="diverged"):
        trainer(logger, tmp_path).fit(Line(fails_at=3))
    assert list(stored_runs.points(logger.version)["train/loss"]) == [0, 1, 2]
    assert stored_runs.ends(logger.version) == ["failed"]


def test_a_test_after_the_fit_is_the_next_attempt_of_the_same_run(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    logger = HalvingLogger("p", root=store.root)
    line = Line()
    both = trainer(logger, tmp_path, max_epochs=1)
    both.fit(line)
    both.test(line, verbose=False)
    assert stored_runs.runs() == [logger.version]
    assert set(stored_runs.points(logger.version, attempt=2)) == {"test/loss", "epoch"}
    assert stored_runs.ends(logger.version) == ["finished", "finished"]


def test_the_experiment_is_the_run_even_before_the_hyperparameters_are_known(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    class Logs(Line):
        def on_train_start(self) -> None:
            assert self.logger is not None
            self.logger.experiment.log({"custom": 5.0}, step=7)

    logger = HalvingLogger("p", root=store.root)
    early = logger.experiment
    assert store.names("") == []
    trainer(logger, tmp_path, max_epochs=1).fit(Logs(lr=0.3))
    assert early.params == {"lr": 0.3}
    assert stored_runs.points(logger.version)["custom"] == {7: 5.0}
    logger.finalize("success")


def test_a_run_of_the_callers_gets_the_points_and_stays_open(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    with halving.init("p", {"lr": 0.9}, store.root, id="mine") as run:
        logger = HalvingLogger(run=run)
        trainer(logger, tmp_path, max_epochs=1).fit(Line(lr=0.05))
        assert logger.experiment is run
        assert (logger.name, logger.version) == ("p", "mine")
        assert len(stored_runs.points("mine")["train/loss"]) == BATCHES
        assert stored_runs.ends("mine") == []
    assert stored_runs.ends("mine") == ["finished"]
    assert stored_runs.params("mine") == {"lr": 0.9}


def test_a_run_is_continued_by_its_id_and_only_with_its_params(
    store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    for _ in range(2):
        trainer(HalvingLogger("p", root=store.root, id="r"), tmp_path, max_epochs=1).fit(Line())
    assert stored_runs.ends("r") == ["finished", "finished"]
    assert len(stored_runs.points("r", attempt=2)["train/loss"]) == BATCHES
    with pytest.raises(AlreadyExists, match="params never change"):
        trainer(HalvingLogger("p", root=store.root, id="r"), tmp_path).fit(Line(lr=7.0))


def test_hyperparameters_that_come_later_are_warned_about_once_named(
    store: Store, stored_runs: StoredRuns
) -> None:
    logger = HalvingLogger("p", root=store.root)
    logger.log_hyperparams(argparse.Namespace(lr=0.1, activation=torch.nn.ReLU))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        logger.log_hyperparams({"lr": 0.1})
    with pytest.warns(UserWarning, match=r"params never change, so \['lr', 'width'\]"):
        logger.log_hyperparams({"lr": 0.2, "width": 3})
    logger.finalize("success")
    assert stored_runs.params(logger.version) == {"lr": 0.1, "activation": "torch.nn.modules.activation.ReLU"}


def test_only_rank_zero_opens_a_run(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = HalvingLogger("p", root=store.root)
    logger.log_hyperparams({"lr": 0.1})
    logger.log_metrics({"loss": 1.0}, 0)
    logger.experiment.log({"loss": 1.0}, step=0)
    logger.finalize("success")
    assert store.names("") == []


def test_points_without_a_step_follow_the_last(store: Store, stored_runs: StoredRuns) -> None:
    logger = HalvingLogger("p", root=store.root)
    logger.log_metrics({"a": 1.0})
    logger.log_metrics({"a": 2.0}, step=10)
    logger.log_metrics({"a": math.inf, "b": torch.tensor(4.0)})
    logger.finalize("success")
    assert stored_runs.points(logger.version) == {"a": {0: 1.0, 10: 2.0, 11: math.inf}, "b": {11: 4.0}}


def test_a_logger_that_nobody_used_leaves_nothing(store: Store, tmp_path: Path) -> None:
    HalvingLogger("p", root=store.root).finalize("success")
    assert store.names("") == []


# Checkpoints


@pytest.mark.parametrize(
    ("log_model", "save_top_k", "stored"),
    [
        (False, -1, set()),
        (True, 1, {"last.ckpt", "epoch-2-step-12.ckpt"}),
        (
            True,
            -1,
            {
                "epoch-0-step-4.ckpt",
                "epoch-1-step-8.ckpt",
                "epoch-2-step-12.ckpt",
                "last.ckpt",
                "last-2.ckpt",
                "last-3.ckpt",
            },
        ),
        (
            "all",
            1,
            {
                "epoch-0-step-4.ckpt",
                "epoch-1-step-8.ckpt",
                "epoch-2-step-12.ckpt",
                "last.ckpt",
                "last-2.ckpt",
                "last-3.ckpt",
            },
        ),
    ],
)
def test_checkpoints_are_stored_as_asked_for(
    log_model: Any, save_top_k: int, stored: set[str], store: Store, stored_runs: StoredRuns, tmp_path: Path
) -> None:
    logger = HalvingLogger("p", root=store.root, log_model=log_model)
    keep = ModelCheckpoint(save_top_k=save_top_k, save_last=True, monitor="epoch", mode="max")
    fit = trainer(logger, tmp_path, max_epochs=3, enable_checkpointing=True, callbacks=[keep])
    fit.fit(Line())
    folder = tmp_path / "p" / logger.version / "checkpoints"
    assert Path(keep.last_model_path) == folder / "last.ckpt"
    artifacts = stored_runs.artifacts(logger.version)
    assert set(artifacts) == stored
    if stored:
        last = "last-3.ckpt" if "last-3.ckpt" in stored else "last.ckpt"
        assert artifacts[last] == (folder / "last.ckpt").read_bytes()
        assert artifacts["epoch-2-step-12.ckpt"] == (folder / "epoch=2-step=12.ckpt").read_bytes()


def test_a_checkpoint_that_cannot_be_stored_does_not_end_training(
    store: Store, stored_runs: StoredRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Store, content: Any) -> str:
        raise halving.StoreError("no space left")

    monkeypatch.setattr(Store, "put_blob", full)
    logger = HalvingLogger("p", root=store.root, log_model="all")
    fit = trainer(logger, tmp_path, max_epochs=1, enable_checkpointing=True)
    with pytest.warns(UserWarning, match=r"checkpoint .*\.ckpt is not stored: no space left"):
        fit.fit(Line())
    assert len(stored_runs.points(logger.version)["train/loss"]) == BATCHES
    assert stored_runs.ends(logger.version) == ["finished"]


# What is given


def test_what_is_no_choice_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="log_model 'some' is not accepted: give True, False or 'all'"):
        HalvingLogger("p", log_model="some")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="give run=… alone"):
        HalvingLogger()


@pytest.mark.slow
def test_pytorch_lightning_is_enough_and_preferred_where_the_script_imports_it(tmp_path: Path) -> None:
    source = Path(lightning_trainings.__file__).read_text()
    line = source[source.index("class Line(") : source.index("def trainer(")]
    # Both cases are forks of one process: to import the package takes ten times as long as all else.
    program = (
        "import os, sys\n"
        "import pytorch_lightning as pl, torch\n"
        "from typing import Any\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "case = 'hidden'\n"
        "if child := os.fork():\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    case = 'there'\n"
        "else:\n"
        "    sys.modules['lightning'] = None\n"
        "from halving.integrations.lightning import HalvingLogger\n"
        "BATCHES = 4\n"
        f"{line}\n"
        "logger = HalvingLogger('p', id=case)\n"
        "assert isinstance(logger, pl.loggers.Logger)\n"
        "assert 'lightning.pytorch' not in sys.modules\n"
        "pl.Trainer(max_epochs=1, log_every_n_steps=1, accelerator='cpu', logger=logger, "
        "enable_checkpointing=False,\n"
        "           enable_progress_bar=False, enable_model_summary=False).fit(Line(lr=0.2))\n"
    )
    environment = {**os.environ, "HALVING_ROOT": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    stored_runs = StoredRuns(Store(tmp_path / "store"))
    for case in ("hidden", "there"):
        assert stored_runs.params(case) == {"lr": 0.2}
        assert len(stored_runs.points(case)["train/loss"]) == 4
        assert stored_runs.ends(case) == ["finished"]
