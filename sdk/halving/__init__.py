"""Halving's SDK: what training code imports. It needs pyarrow and nothing else, and no server."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from halving.query import best, curves, last, leaderboard, sql

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
    "best",
    "curves",
    "init",
    "last",
    "leaderboard",
    "sql",
]


def __getattr__(name: str) -> Any:
    """Reading is imported when it is first asked for: most processes only log."""
    if name in ("best", "curves", "last", "leaderboard", "sql"):
        from halving import query

        return getattr(query, name)
    raise AttributeError(f"module 'halving' has no attribute {name!r}")
