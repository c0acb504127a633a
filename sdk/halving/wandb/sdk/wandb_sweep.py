"""``wandb.sdk.wandb_sweep``: ``sweep`` again."""

from halving.wandb.sweeps import sweep

__all__ = ["sweep"]
