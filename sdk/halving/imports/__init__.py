"""Runs that other trackers recorded, copied into the store: TensorBoard's event files, W&B's offline folders,
MLflow's servers and stores, Neptune's exports, trackio's databases.

A reader says what a tool knows of a run (:mod:`halving.imports.foreign_run`), and
:mod:`halving.imports.copying` writes it.
"""
