"""The files that a run is given as artifacts, and what each is called: one file, or all that is in a
folder.
"""

import os
from collections.abc import Callable
from pathlib import Path

from halving.errors import InvalidInput
from halving.identifiers import check_artifact_name


def files_of(path: str | Path, name: str | None = None) -> list[tuple[str, Path]]:
    """List the files at a path, each with its artifact's name: ``name``, and for those of a folder ``name``
    and their path in it.

    Args:
        name: default: that of the file or of the folder.

    Raises:
        InvalidInput: there is nothing, something is neither a file nor a folder, cannot be listed or is named
            so that it cannot be shown.
    """
    source = Path(path)
    if not _is(source, Path.exists):
        raise _refusal(source, "give an existing file or folder")
    # of "." and "plots/.." that of the folder which it means
    name = name or Path(os.path.normpath(source.absolute())).name
    files = _below(source, name, ()) if _is(source, Path.is_dir) else [(name, _file(source))]
    for each, _ in files:
        check_artifact_name("artifact name", each)
    return files


def _below(folder: Path, name: str, above: tuple[Path, ...]) -> list[tuple[str, Path]]:
    """The files of a folder and of its folders, in order. Links are what they lead to."""
    try:
        real = folder.resolve(strict=True)
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise _refusal(folder, f"it cannot be read: {error.strerror}") from None
    if real in above:
        raise _refusal(folder, f"it is a link to {str(real)!r}, in which it is itself")
    files: list[tuple[str, Path]] = []
    for entry in entries:
        inner = f"{name}/{entry.name}"
        files += _below(entry, inner, (*above, real)) if _is(entry, Path.is_dir) else [(inner, _file(entry))]
    return files


def _file(path: Path) -> Path:
    if not _is(path, Path.is_file):
        raise _refusal(path, "it is neither a file nor a folder")
    return path


def _is(path: Path, what: Callable[[Path], bool]) -> bool:
    try:
        return what(path)
    except (OSError, ValueError):  # it may not be looked at, or is too long for a path, or has NUL
        return False


def _refusal(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(f"artifact path {str(path)!r} is not accepted: {reason}")
