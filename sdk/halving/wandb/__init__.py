"""Compatible with W&B: ``import halving.wandb as wandb`` records what a script logs with W&B's names.

It stands on what the SDK offers to everybody (``halving.init``, ``halving.Run``) and must not know
how the platform shows runs. ``docs/wandb.md`` has the table of names: what works, what differs, and what is
not there.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import halving
from halving.wandb import current as _current

# Python sets a package's attribute to a submodule when that is first imported. These are imported now, so
# that wandb.run, wandb.config and wandb.summary are the current run's afterwards.
from halving.wandb.config import Config as Config
from halving.wandb.run import Run as Run
from halving.wandb.summary import Summary as Summary

if TYPE_CHECKING:
    from halving.wandb.alerts import AlertLevel
    from halving.wandb.api import Api
    from halving.wandb.errors import CommError, Error, UsageError
    from halving.wandb.opening import init
    from halving.wandb.settings import Settings

__version__ = "0.31.0"
"""The version of W&B whose names and semantics these are; frameworks compare it with what they need."""

halving_version = halving.__version__

_MODULES = {
    **dict.fromkeys(["init"], "halving.wandb.opening"),
    **dict.fromkeys(
        ["attach", "ensure_configured", "finish", "join", "login", "require", "restore", "setup", "teardown"],
        "halving.wandb.session",
    ),
    **dict.fromkeys(["termerror", "termlog", "termsetup", "termwarn"], "halving.wandb.errors.term"),
    **dict.fromkeys(["AuthenticationError", "CommError", "Error", "UsageError"], "halving.wandb.errors"),
    "AlertLevel": "halving.wandb.alerts",
    "plot_table": "halving.wandb.plot",
    "Settings": "halving.wandb.settings",
    # Data types, artifacts, files and gradients.
    **dict.fromkeys(
        ["Audio", "Classes", "Histogram", "Html", "Image", "Object3D", "Plotly", "Table", "Video"],
        "halving.wandb.data_types",
    ),
    "Artifact": "halving.wandb.artifacts",
    # Reading runs, and sweeps.
    "Api": "halving.wandb.api",
    **dict.fromkeys(["agent", "sweep"], "halving.wandb.sweeps"),
    # Modules.
    **dict.fromkeys(
        [
            "apis",
            "artifacts",
            "data_types",
            "env",
            "errors",
            "helper",
            "integration",
            "plot",
            "sdk",
            "util",
        ],
        "",
    ),
}
# What W&B has and Halving has not, with what to do instead.
_MISSING = {
    "ArtifactTTL": "how long artifacts stay is the retention policy's: `halving retention`",
    "EvalTable": "log a wandb.Table",
    "Graph": "log the model's text with wandb.Html or save it as a file",
    "JoinedTable": "log the joined rows as one wandb.Table",
    "Molecule": "save the file with wandb.save",
    "box3d": "log boxes as a wandb.Table",
    "catboost": "log its metrics with wandb.log in a callback of your own",
    "controller": "a sweep's decisions are Halving's: `halving sweep`",
    "gym": "log videos with wandb.Video",
    "jupyter": "cells need nothing of it",
    "keras": "use halving.integrations.keras.HalvingCallback",
    "lightgbm": "log its metrics with wandb.log in a callback of your own",
    "profiler": "save the trace with wandb.save",
    "sacred": "log with wandb.log",
    "sagemaker_auth": "Halving asks for no login",
    "sklearn": "log what you compute with wandb.log and wandb.Table",
    "tensorboard": "import its folder: `halving import tensorboard FOLDER`",
    "tensorflow": "log with wandb.log in a callback of your own",
    "visualize": "log a wandb.Table",
    "xgboost": "log its metrics with wandb.log in a callback of your own",
}

__all__ = [
    "AlertLevel",
    "Api",
    "CommError",
    "Config",
    "Error",
    "Run",
    "Settings",
    "UsageError",
    "__version__",
    "halving_version",
    "init",
]

_current.reset()


def __getattr__(name: str) -> Any:
    """Import a name's module when the name is first used.

    Raises:
        NameMissing: W&B has this name, and Halving has not.
    """
    if name in _MISSING:
        from halving.wandb.errors import NameMissing

        raise NameMissing(
            f"wandb.{name} is not there in Halving: {_MISSING[name]}; docs/wandb.md has the table of names"
        )
    if name not in _MODULES:
        raise AttributeError(f"module 'wandb' has no attribute {name!r}")
    module = _MODULES[name]
    try:
        if not module:
            return import_module(f"halving.wandb.{name}")
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("halving.wandb"):
            raise
        raise AttributeError(f"module 'wandb' has no attribute {name!r}: {error}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
