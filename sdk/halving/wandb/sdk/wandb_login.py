"""``wandb.sdk.wandb_login``: ``login`` again."""

from halving.wandb.session import login

__all__ = ["login"]
