"""Finishes open runs when the script ends, as ``failed`` where its exit code is not 0."""

import atexit
import sys
from typing import Any, NoReturn

from halving.wandb import current

_codes: list[int] = []  # that sys.exit was last called with
_exit = sys.exit


def watch_exit() -> None:
    """Have open runs finished at the interpreter's exit, before :mod:`halving.run.signals` does.

    ``sys.exit(1)`` ends a run as failed, which nothing else tells at that time; so ``sys.exit`` is replaced
    by a function that notes its argument.
    """
    # The function that is registered last runs first.
    atexit.unregister(_finish_all)
    atexit.register(_finish_all)
    if sys.exit is not _noting_exit:
        global _exit
        _exit = sys.exit
        sys.exit = _noting_exit


def _noting_exit(status: Any = None, /) -> NoReturn:
    code = 0
    if isinstance(status, int):
        code = status
    elif status is not None:
        code = 1
    _codes[:] = [code]
    _exit(status)


def _finish_all() -> None:
    code = 0
    if _codes:
        code = _codes[0]
    if getattr(sys, "last_value", None) is not None:
        # The interpreter sets it when an uncaught exception has ended the script.
        code = 1
    for run in reversed(current.open_runs()):
        run.finish(code)
