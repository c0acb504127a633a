"""``wandb.helper``: reads a script's config."""

from halving.wandb.config import parse_config as parse_config
