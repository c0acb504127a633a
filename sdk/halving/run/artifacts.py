"""The files that become a run's artifacts, with their names: one file, or all files of a folder."""

import os
from collections.abc import Callable
from pathlib import Path

from halving.errors import InvalidInput
from halving.identifiers import check_artifact_name


def files_of(path: str | Path, name: str | None = None) -> list[tuple[str, Path]]:
    """List the files at a path, each with the name of its artifact.

    A file's is ``name``; those of a folder have ``name`` and their path in the folder.

    Args:
        name: default: that of the file or of the folder.

    Raises:
        InvalidInput: nothing is there; or something in it is neither a file nor a folder, cannot be listed,
            or has a name that cannot be displayed.
    """
    source = Path(path)
    if not _is(source, Path.exists):
        raise _refusal(source, "give an existing file or folder")
    # "." and "plots/.." have the name of the folder that they mean.
    name = name or Path(os.path.normpath(source.absolute())).name
    files = _files_below(source, name, ())
    for artifact_name, _ in files:
        check_artifact_name("artifact name", artifact_name)
    return files


def _files_below(folder: Path, name: str, above: tuple[Path, ...]) -> list[tuple[str, Path]]:
    """The file itself, or the files of a folder and of its folders, in order; links are followed."""
    if not _is(folder, Path.is_dir):
        return [(name, _file(folder))]
    try:
        real = folder.resolve(strict=True)
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise _refusal(folder, f"it cannot be read: {error.strerror}") from None
    if real in above:
        raise _refusal(folder, f"it is a link to {str(real)!r}, in which it is itself")
    files: list[tuple[str, Path]] = []
    for entry in entries:
        files += _files_below(entry, f"{name}/{entry.name}", (*above, real))
    return files


def _file(path: Path) -> Path:
    if not _is(path, Path.is_file):
        raise _refusal(path, "it is neither a file nor a folder")
    return path


def _is(path: Path, test: Callable[[Path], bool]) -> bool:
    try:
        return test(path)
    except (OSError, ValueError):
        # There is no permission, the path is too long, or it has a NUL.
        return False


def _refusal(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(f"artifact path {str(path)!r} is not accepted: {reason}")
