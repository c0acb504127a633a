"""``wandb.sdk.wandb_alerts``: the level of an alert again."""

from halving.wandb.alerts import AlertLevel

__all__ = ["AlertLevel"]
