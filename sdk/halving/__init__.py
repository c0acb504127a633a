"""Halving's SDK: what training code imports. It needs pyarrow and nothing else, and no server."""

from halving.dataset import Dataset
from halving.errors import (
    AlreadyExists,
    CheckpointMismatch,
    CheckpointMissing,
    Diverged,
    HalvingError,
    InvalidInput,
    NotFound,
    ObjectiveMissing,
    StoreError,
)
from halving.media import Histogram, Image, Table, Text
from halving.opening import init
from halving.run import Run
from halving.store import Store
from halving.trained import TrainedRun

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "CheckpointMismatch",
    "CheckpointMissing",
    "Dataset",
    "Diverged",
    "HalvingError",
    "Histogram",
    "Image",
    "InvalidInput",
    "NotFound",
    "ObjectiveMissing",
    "Run",
    "Store",
    "StoreError",
    "Table",
    "Text",
    "TrainedRun",
    "init",
]
