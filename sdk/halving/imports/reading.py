"""Reading another tool's files and answers: what cannot be read is said with its place, and keeps nothing
else from being read.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from halving.errors import HalvingError
from halving.imports.foreign_run import SourceUnreadable

T = TypeVar("T")

LEFT_BEHIND = (
    "files that a file manager or a notebook left (.DS_Store, ._…, Thumbs.db, desktop.ini, "
    ".ipynb_checkpoints, __MACOSX)"
)
_LEFT_NAMES = frozenset({".ds_store", "thumbs.db", "desktop.ini", ".ipynb_checkpoints", "__macosx"})


class Unreadable(NamedTuple):
    """A run that cannot be read, or a part of a source in which there may be runs: a later import takes it.

    Attributes:
        name: what the tool calls it.
        error: which file, and why.
    """

    name: str
    error: str


@contextmanager
def reading(source: object) -> Iterator[None]:
    """Say of errors that come up inside what was being read; errors of ours say so already.

    Raises:
        SourceUnreadable: a file cannot be read, or has another content than it should have.
    """
    try:
        yield
    except HalvingError:
        raise
    except OSError as error:
        raise SourceUnreadable(
            f"{error.filename or source} cannot be read: {error.strerror or error}"
        ) from None
    except KeyError as error:
        raise SourceUnreadable(f"{source} cannot be read: it has no {error}") from None
    except (ValueError, IndexError, TypeError) as error:
        raise SourceUnreadable(f"{source} cannot be read: {error}") from None


def readable(name: str, read: Callable[[], T]) -> T | Unreadable:
    """What ``read`` gives, or that it cannot be read."""
    try:
        with reading(name):
            return read()
    except HalvingError as error:
        return Unreadable(name, str(error))


def is_left_behind(path: str) -> bool:
    """Whether a relative path is no data of a tool's: a file manager or a notebook left it, or the folder
    that it is in.
    """
    return any(name.startswith("._") or name.casefold() in _LEFT_NAMES for name in path.split("/"))


def files_below(
    folder: Path, failed: Callable[[OSError], object] | None = None, *, left_behind: bool = False
) -> list[Path]:
    """The files in a folder and its folders, sorted; none where there is no such folder.

    (``Path.rglob`` leaves out what it may not list.)

    Args:
        failed: gets the error of a folder that cannot be listed. Without it that error is raised.
        left_behind: also what :func:`is_left_behind`.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            (failed or _raise)(error)

    paths = []
    for parent, folders, names in os.walk(folder, onerror=note):
        if not left_behind:
            # which is how os.walk is told to leave folders out
            folders[:] = [name for name in folders if not is_left_behind(name)]
            names = [name for name in names if not is_left_behind(name)]
        paths += [Path(parent, name) for name in names]
    return sorted(paths)


def _raise(error: OSError) -> NoReturn:
    raise error
