"""The current run, and what W&B's module-level names are before there is one."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from halving.wandb.errors import Error

if TYPE_CHECKING:
    from halving.wandb.run import Run

# Module-level functions that belong to the current run.
METHODS = (
    "alert",
    "define_metric",
    "link_model",
    "log",
    "log_artifact",
    "log_model",
    "mark_preempting",
    "pin_config_keys",
    "save",
    "unwatch",
    "use_artifact",
    "use_model",
    "watch",
)
_open_runs: list["Run"] = []


class BeforeInit:
    """Stands for ``wandb.config`` and ``wandb.summary`` before ``wandb.init()``."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, key: str) -> None:
        raise Error(f"You must call wandb.init() before {self._name}[{key!r}]")

    def __setitem__(self, key: str, value: Any) -> None:
        raise Error(f"You must call wandb.init() before {self._name}[{key!r}]")

    def __setattr__(self, key: str, value: Any) -> None:
        if not key.startswith("_"):
            raise Error(f"You must call wandb.init() before {self._name}.{key}")
        object.__setattr__(self, key, value)

    def __getattr__(self, key: str) -> Any:
        if not key.startswith("_"):
            raise Error(f"You must call wandb.init() before {self._name}.{key}")
        raise AttributeError(key)


def current_run() -> "Run | None":
    """The run that module-level names belong to."""
    run: Run | None = vars(_module()).get("run")
    return run


def open_runs() -> list["Run"]:
    """All runs that this process has opened and not finished, the newest last."""
    return list(_open_runs)


def enter(run: "Run", *, is_current: bool = True) -> None:
    """Note a run that was opened, and let module-level names belong to it."""
    _open_runs.append(run)
    if not is_current:
        return
    names = vars(_module())
    names.update(run=run, config=run.config, summary=run.summary)
    names.update({name: getattr(run, name) for name in METHODS})


def leave(run: "Run") -> None:
    """Forget a run that is finished."""
    if run in _open_runs:
        _open_runs.remove(run)
    if current_run() is run:
        reset()


def reset() -> None:
    """Let module-level names be what they are before ``init``."""
    names = vars(_module())
    names.update(run=None, config=BeforeInit("wandb.config"), summary=BeforeInit("wandb.summary"))
    names.update({name: _refuse(name) for name in METHODS})


def _refuse(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        raise Error(f"You must call wandb.init() before wandb.{name}()")

    call.__name__ = call.__qualname__ = name
    return call


def _module() -> Any:
    return sys.modules["halving.wandb"]
