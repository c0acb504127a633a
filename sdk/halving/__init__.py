"""Halving's SDK: what training code imports. It needs pyarrow and numpy, and no server."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halving.data.dataset import Dataset
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
    from halving.ingest.media import Histogram, Image, Table, Text
    from halving.query.api import best, curves, last, leaderboard, sql
    from halving.run.init import init
    from halving.run.run import Run
    from halving.run.trained_run import TrainedRun
    from halving.store.store import Store

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
    **dict.fromkeys(["best", "curves", "last", "leaderboard", "sql"], "halving.query.api"),
    **dict.fromkeys(["Histogram", "Image", "Table", "Text"], "halving.ingest.media"),
    "Dataset": "halving.data.dataset",
    "Run": "halving.run.run",
    "Store": "halving.store.store",
    "TrainedRun": "halving.run.trained_run",
    "init": "halving.run.init",
}


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used: a program that only reads does not load the code that logs."""
    if name not in __all__:
        raise AttributeError(f"module 'halving' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES.get(name, "halving.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
