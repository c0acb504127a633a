"""``wandb.sdk.wandb_run``: the run again."""

from halving.wandb.run import Run

__all__ = ["Run"]
