"""Small trainings by Lightning."""

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from halving.integrations.lightning import HalvingLogger

BATCHES = 4  # of 8 samples, an epoch


class Line(pl.LightningModule):
    def __init__(self, lr: float = 0.1, fails_at: int | None = None) -> None:
        super().__init__()
        self.save_hyperparameters(ignore=["fails_at"])
        self.layer = torch.nn.Linear(4, 1)
        self.fails_at = fails_at

    def _loss(self, batch: Any) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        if self.global_step == self.fails_at:
            raise ArithmeticError("diverged")
        loss = self._loss(batch)
        self.log("train/loss", loss)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val/loss", self._loss(batch))

    def test_step(self, batch: Any, index: int) -> None:
        self.log("test/loss", self._loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])

    def train_dataloader(self) -> DataLoader[Any]:
        generator = torch.Generator().manual_seed(0)
        inputs = torch.randn(BATCHES * 8, 4, generator=generator)
        return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)

    val_dataloader = test_dataloader = train_dataloader


def trainer(logger: HalvingLogger, folder: Path, **changes: Any) -> pl.Trainer:
    settings = {
        "max_epochs": 2,
        "log_every_n_steps": 1,
        "accelerator": "cpu",
        "enable_checkpointing": False,
        **changes,
    }
    return pl.Trainer(
        logger=logger,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
