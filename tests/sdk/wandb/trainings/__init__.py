"""Trainings that are written for W&B: the same files run with it and with ``halving run --as-wandb``."""
