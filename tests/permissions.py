"""Files that may not be read, also where the tests run as root, who may read everything."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION = 0x20080522
_READS_ANYTHING = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH (capabilities(7))


@contextmanager
def deny_access(path: Path) -> Iterator[None]:
    """Nobody may read a file, or look into a folder, while the block lasts."""
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with _as_anybody():
            yield
    finally:
        path.chmod(mode)


@contextmanager
def _as_anybody() -> Iterator[None]:
    """This thread asks by the files' modes."""
    if os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets):
        raise OSError(ctypes.get_errno(), "capget")
    effective = sets[0]
    sets[0] = effective & ~_READS_ANYTHING
    if libc.capset(header, sets):
        raise OSError(ctypes.get_errno(), "capset")
    try:
        yield
    finally:
        sets[0] = effective
        libc.capset(header, sets)
