"""``wandb.sdk.lib.config_util``: the error of a value of the config that would change."""

from halving.wandb.errors import ConfigError

__all__ = ["ConfigError"]
