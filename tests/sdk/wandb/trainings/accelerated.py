"""A loop of one's own on Accelerate with ``log_with="wandb"``."""

import torch
from accelerate import Accelerator


def main() -> None:
    torch.manual_seed(0)
    accelerator = Accelerator(log_with="wandb", cpu=True)
    accelerator.init_trackers(
        "equal", config={"lr": 0.1, "layers": 2}, init_kwargs={"wandb": {"name": "loop", "tags": ["tiny"]}}
    )
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    for step in range(6):
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"train/loss": loss.item(), "step": step}, step=step)
    accelerator.end_training()


if __name__ == "__main__":
    main()
