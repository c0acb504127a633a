"""``wandb.sdk.lib``: what Lightning's ``WandbLogger`` and the Transformers' ``WandbCallback`` import."""

from halving.wandb.sdk.lib import config_util, disabled, runid
from halving.wandb.sdk.lib.disabled import RunDisabled, SummaryDisabled

__all__ = ["RunDisabled", "SummaryDisabled", "config_util", "disabled", "runid"]
