"""Reading another tool's files and answers.

A file that cannot be read is reported with its place, and the others are read all the same.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
    """A run that cannot be read, or a part of a source that may have runs; a later import takes it.

    Attributes:
        name: the tool's name of it.
        error: which file, and why.
    """

    name: str
    error: str


@contextmanager
def reading(source: object) -> Iterator[None]:
    """Report errors in the block as :class:`SourceUnreadable` with the name of the source.

    Errors of this project pass unchanged, because they name their source already.

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
    """Return what ``read`` returns, or an ``Unreadable`` if that fails."""
    try:
        with reading(name):
            return read()
    except HalvingError as error:
        return Unreadable(name, str(error))


def local_file(path: Path) -> AbstractContextManager[bytes | Path]:
    """Open an artifact that is a file on this machine's disk: it is read where it lies."""
    return nullcontext(path)


def is_left_behind(path: str) -> bool:
    """Whether a file manager or a notebook left the file or folder of a relative path behind."""
    return any(name.startswith("._") or name.casefold() in _LEFT_NAMES for name in path.split("/"))


def files_below(
    folder: Path, failed: Callable[[OSError], object] | None = None, *, left_behind: bool = False
) -> list[Path]:
    """List the files in a folder and its folders, sorted; none where there is no such folder.

    ``Path.rglob`` is not used, because it leaves out what it may not list.

    Args:
        failed: gets the error of a folder that cannot be listed. Without it that error is raised.
        left_behind: also list what :func:`is_left_behind`.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            (failed or _raise)(error)

    paths = []
    for parent, folders, names in os.walk(folder, onerror=note):
        if not left_behind:
            # Changing the list in place makes os.walk leave folders out.
            folders[:] = [name for name in folders if not is_left_behind(name)]
            names = [name for name in names if not is_left_behind(name)]
        paths += [Path(parent, name) for name in names]
    return sorted(paths)


def _raise(error: OSError) -> NoReturn:
    raise error
