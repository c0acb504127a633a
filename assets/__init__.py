"""The Dagster assets: dataset snapshots, sweeps, trials, evaluation reports, promoted checkpoints."""
