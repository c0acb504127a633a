"""Lightning with its ``WandbLogger``."""

import lightning.pytorch as pl
import torch
from lightning.pytorch.loggers import WandbLogger
from torch.utils.data import DataLoader, TensorDataset


class Line(pl.LightningModule):
    def __init__(self, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch: list, index: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("train/loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch: list, index: int) -> None:
        self.log("val/loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.hparams["lr"])

    def train_dataloader(self) -> DataLoader:
        inputs = torch.randn(32, 4, generator=torch.Generator().manual_seed(0))
        return DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)

    val_dataloader = train_dataloader


def main() -> None:
    pl.seed_everything(0)
    logger = WandbLogger(project="equal", name="line", log_model=False, tags=["tiny"])
    logger.log_hyperparams({"note": "x"})
    trainer = pl.Trainer(
        logger=logger,
        max_epochs=2,
        log_every_n_steps=1,
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Line()
    logger.watch(model, log="all", log_freq=2, log_graph=False)
    trainer.fit(model)
    logger.log_text("samples", columns=["in", "out"], data=[["a", "b"]])
    logger.experiment.finish()


if __name__ == "__main__":
    main()
