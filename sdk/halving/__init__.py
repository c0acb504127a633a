"""Halving's SDK: what training code imports. It needs pyarrow and nothing else, and no server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from halving.query import best, curves, last, leaderboard, sql
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
    "best",
    "curves",
    "init",
    "last",
    "leaderboard",
    "sql",
]

_MODULES = {
    **dict.fromkeys(["best", "curves", "last", "leaderboard", "sql"], "halving.query"),
    **dict.fromkeys(["Histogram", "Image", "Table", "Text"], "halving.media"),
    "Dataset": "halving.dataset",
    "Run": "halving.run",
    "Store": "halving.store",
    "TrainedRun": "halving.trained",
    "init": "halving.opening",
}


def __getattr__(name: str) -> Any:
    """A name's module is imported when the name is first used: who reads need not load what logs."""
    if name not in __all__:
        raise AttributeError(f"module 'halving' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES.get(name, "halving.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
