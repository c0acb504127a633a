"""``wandb.sdk.artifacts``: the artifact again."""

from halving.wandb.artifacts import Artifact

__all__ = ["Artifact"]
