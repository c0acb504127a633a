"""Lines for the user on standard error, as W&B writes them."""

import sys
from typing import Any

_PREFIX = "wandb: "
_written: set[str] = set()
_silent = False


def termsetup(settings: Any, logger: Any = None) -> None:
    """Show or hide the lines, by ``settings.silent``."""
    global _silent
    _silent = bool(getattr(settings, "silent", False))


def termlog(string: str = "", newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Write a line; one that must not be repeated is written once."""
    _write(string, "", newline=newline, repeat=repeat, prefix=prefix)


def termwarn(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Write a warning."""
    _write(string, "WARNING ", newline=newline, repeat=repeat, prefix=prefix)


def termerror(string: str, newline: bool = True, repeat: bool = True, prefix: bool = True) -> None:
    """Write an error."""
    _write(string, "ERROR ", newline=newline, repeat=repeat, prefix=prefix)


def _write(text: str, level: str, *, newline: bool, repeat: bool, prefix: bool) -> None:
    line = f"{level}{text}"
    if _silent or (not repeat and line in _written):
        return
    if not repeat:
        _written.add(line)
    if prefix:
        line = "\n".join(f"{_PREFIX}{part}" for part in line.split("\n"))
    if newline:
        line += "\n"
    try:
        sys.stderr.write(line)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        # Standard error is closed, or the process has none; nothing can be said then.
        return
