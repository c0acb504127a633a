"""``wandb.sdk.lib.runid``: new ids of runs."""

from halving.wandb.util import generate_fast_id, generate_id

__all__ = ["generate_fast_id", "generate_id"]
