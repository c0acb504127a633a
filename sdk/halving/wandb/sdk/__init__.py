"""``wandb.sdk``: the module paths by which frameworks and scripts import W&B's names.

Each module has the names of ``halving.wandb`` again, and nothing of its own.
"""

from importlib import import_module
from typing import Any

import halving.wandb

_NAMES = (
    "AlertLevel",
    "Artifact",
    "Config",
    "Settings",
    "finish",
    "init",
    "login",
    "require",
    "setup",
    "sweep",
    "teardown",
)
_MODULES = (
    "artifacts",
    "lib",
    "wandb_alerts",
    "wandb_config",
    "wandb_init",
    "wandb_login",
    "wandb_run",
    "wandb_settings",
    "wandb_summary",
    "wandb_sweep",
)


def __getattr__(name: str) -> Any:
    """Import what a name stands for when the name is first used.

    Raises:
        NameMissing: W&B may have it here, and Halving has not.
    """
    if name in _NAMES:
        return getattr(halving.wandb, name)
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    from halving.wandb.errors import NameMissing

    raise NameMissing(f"wandb.sdk.{name} is not there in Halving; docs/wandb.md has the table of names")


def __dir__() -> list[str]:
    return sorted([*_NAMES, *_MODULES])
