"""What exists: dataset snapshots, sweeps, trials, evaluation reports and promoted checkpoints, as Dagster
assets.
"""
