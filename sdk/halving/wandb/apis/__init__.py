"""``wandb.apis``: runs that were recorded, read."""

from halving.wandb.apis import public
from halving.wandb.apis.public import Api

__all__ = ["Api", "public"]
