"""``wandb.apis.public``: the classes of :mod:`halving.wandb.api` again."""

from halving.wandb.api import Api, File, Project, Run, Runs, Sweep

__all__ = ["Api", "File", "Project", "Run", "Runs", "Sweep"]
