"""torchtune's ``WandBLogger``, as its recipes use it."""

import torch
from omegaconf import OmegaConf
from torchtune.training.metric_logging import WandBLogger


def main() -> None:
    torch.manual_seed(0)
    logger = WandBLogger(project="equal", name="recipe", log_dir="logs")
    logger.log_config(
        OmegaConf.create({"optimizer": {"lr": 0.1}, "epochs": 2, "output_dir": ".", "log_every_n_steps": 1})
    )
    layer = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for step in range(6):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.mse_loss(layer(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        logger.log_dict({"loss": loss.item(), "lr": 0.1, "tokens_per_second_per_gpu": 8}, step=step + 1)
    logger.log("memory", torch.tensor(3.5), step=7)
    logger.close()


if __name__ == "__main__":
    main()
