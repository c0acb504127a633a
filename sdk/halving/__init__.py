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
    from halving.ingest.audio import Audio
    from halving.ingest.html import Html
    from halving.ingest.media import Histogram, Image, Table, Text
    from halving.ingest.video import Video
    from halving.models.model import Model, load_model
    from halving.models.published import ResolvedModel, resolve
    from halving.query.api import best, curves, last, leaderboard, sql
    from halving.run.evaluation import Evaluation
    from halving.run.init import init
    from halving.run.lifecycle import archive_run, delete_run, note, restore_run, tag_run
    from halving.run.open_run import alert
    from halving.run.run import Run
    from halving.run.trained_run import TrainedRun
    from halving.store.store import Store

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "Audio",
    "CheckpointMismatch",
    "CheckpointMissing",
    "Dataset",
    "Diverged",
    "Evaluation",
    "HalvingError",
    "Histogram",
    "Html",
    "Image",
    "InvalidInput",
    "Model",
    "NotFound",
    "ObjectiveMissing",
    "ResolvedModel",
    "Run",
    "Store",
    "StoreError",
    "Table",
    "Text",
    "TrainedRun",
    "Video",
    "alert",
    "archive_run",
    "best",
    "curves",
    "delete_run",
    "init",
    "last",
    "leaderboard",
    "load_model",
    "note",
    "resolve",
    "restore_run",
    "sql",
    "tag_run",
]

_MODULES = {
    **dict.fromkeys(["best", "curves", "last", "leaderboard", "sql"], "halving.query.api"),
    **dict.fromkeys(["Histogram", "Image", "Table", "Text"], "halving.ingest.media"),
    **dict.fromkeys(["Model", "load_model"], "halving.models.model"),
    **dict.fromkeys(["ResolvedModel", "resolve"], "halving.models.published"),
    **dict.fromkeys(["archive_run", "delete_run", "note", "restore_run", "tag_run"], "halving.run.lifecycle"),
    "Audio": "halving.ingest.audio",
    "Dataset": "halving.data.dataset",
    "Evaluation": "halving.run.evaluation",
    "Html": "halving.ingest.html",
    "Run": "halving.run.run",
    "Store": "halving.store.store",
    "TrainedRun": "halving.run.trained_run",
    "alert": "halving.run.open_run",
    "Video": "halving.ingest.video",
    "init": "halving.run.init",
}


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used.

    So a program that only reads does not load the code that logs.
    """
    if name not in __all__:
        raise AttributeError(f"module 'halving' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES.get(name, "halving.errors")), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
