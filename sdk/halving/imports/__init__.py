"""Copying runs that other trackers recorded: TensorBoard, W&B, MLflow, Neptune and trackio.

A reader describes a tool's runs as :mod:`halving.imports.foreign_run` has them, and
:mod:`halving.imports.copying` writes them to the store.
"""
