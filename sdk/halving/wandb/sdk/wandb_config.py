"""``wandb.sdk.wandb_config``: the config again."""

from halving.wandb.config import Config

__all__ = ["Config"]
