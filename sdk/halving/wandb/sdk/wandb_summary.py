"""``wandb.sdk.wandb_summary``: the summary again."""

from halving.wandb.summary import Summary

__all__ = ["Summary"]
