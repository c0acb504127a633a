"""``wandb.sdk.wandb_init``: ``init`` again."""

from halving.wandb.opening import init

__all__ = ["init"]
