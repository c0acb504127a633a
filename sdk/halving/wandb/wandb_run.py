"""``wandb.wandb_run``: the run again, by the path that Lightning imports."""

from halving.wandb.run import Run

__all__ = ["Run"]
