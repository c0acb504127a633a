"""``wandb.sdk.wandb_settings``: the settings again."""

from halving.wandb.settings import Settings

__all__ = ["Settings"]
