"""``wandb.sdk.artifacts.artifact``: the artifact again."""

from halving.wandb.artifacts import Artifact

__all__ = ["Artifact"]
