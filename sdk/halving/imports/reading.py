"""Reading another tool's files and answers: what cannot be read is said with its place, and keeps nothing else from being read."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

from halving.errors import HalvingError
from halving.imports.foreign_run import SourceUnreadable

T = TypeVar("T")


class Unreadable(NamedTuple):
    """A run that cannot be read, or a part of a source in which there may be runs: a later import takes it.

    Attributes:
        name: what the tool calls it.
        error: which file, and why.
    """

    name: str
    error: str


@contextmanager
def reading(what: object) -> Iterator[None]:
    """Say of errors that come up inside what was being read; errors of ours say so already.

    Raises:
        SourceUnreadable: a file cannot be read, or has another content than it should have.
    """
    try:
        yield
    except HalvingError:
        raise
    except OSError as error:
        raise SourceUnreadable(f"{error.filename or what} cannot be read: {error.strerror or error}") from None
    except KeyError as error:
        raise SourceUnreadable(f"{what} cannot be read: it has no {error}") from None
    except (ValueError, IndexError, TypeError) as error:
        raise SourceUnreadable(f"{what} cannot be read: {error}") from None


def readable(name: str, read: Callable[[], T]) -> T | Unreadable:
    """What ``read`` gives, or that it cannot be read."""
    try:
        with reading(name):
            return read()
    except HalvingError as error:
        return Unreadable(name, str(error))


def files_below(folder: Path, failed: Callable[[OSError], object] | None = None) -> list[Path]:
    """The files in a folder and its folders, sorted; none where there is no such folder. (``Path.rglob`` leaves out what it may not list.)

    Args:
        failed: gets the error of a folder that cannot be listed. Without it that error is raised.
    """

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            (failed or _raise)(error)

    return sorted(Path(parent, name) for parent, _, names in os.walk(folder, onerror=note) for name in names)


def _raise(error: OSError) -> NoReturn:
    raise error
