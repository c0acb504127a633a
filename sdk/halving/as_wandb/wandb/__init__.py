"""``halving.wandb``, for processes in which another ``sitecustomize`` came before ours."""

import sys

import halving_as_wandb  # type: ignore[import-not-found]  # found by PYTHONPATH

halving_as_wandb.install()
halving_as_wandb.AsWandb.exec_module(sys.modules[__name__])
