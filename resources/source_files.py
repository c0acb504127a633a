"""The files that a path or a pattern names, on this machine or an object store, and whether they are still what they were."""

import contextlib
import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from halving.errors import HalvingError, InvalidInput
from halving.store.faults import store_faults
from halving.store.filesystem import open_filesystem

if TYPE_CHECKING:
    from pyarrow import dataset, fs

_SHOWN = 3  # files in a message


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when it was looked at.

    Attributes:
        path: on the filesystem.  shown: as people and lineage have it.
        size: in bytes.  written: nanoseconds since 1970.
    """

    filesystem: "fs.FileSystem"
    path: str
    shown: str
    size: int
    written: int

    @property
    def identity(self) -> str:
        """Another one once the file was written again."""
        return f"{self.shown} {self.size} {self.written}"


def find_files(field: str, pattern: str, *, folders: bool = True) -> list[SourceFile]:
    """Find the files that a path or a pattern names, sorted by path: ``*`` stays within a folder, and ``**/`` does not.

    Args:
        field: that has the pattern, for messages.
        folders: whether a folder's path names the files in it; otherwise it names none.

    Raises:
        InvalidInput: there is none.
        StoreError: the object store cannot be reached.
    """
    filesystem, path = open_place(field, pattern)
    fixed = path[: min((path.find(mark) for mark in "*?[" if mark in path), default=len(path))]
    if fixed == path:
        info = filesystem.get_file_info(path)
        if info.is_file:
            return [SourceFile(filesystem, path, _shown(pattern, path), info.size, info.mtime_ns or 0)]
        if not folders:
            return []
        base, wanted = path, f"{path.rstrip('/')}/*"
    else:
        base, wanted = fixed.rpartition("/")[0], path
    is_flat = "**" not in wanted and wanted.count("/") == base.count("/") + 1
    files = [file for file in list_files(field, pattern, filesystem, base, recursive=not is_flat) if _fits(file.path, wanted)]
    if not files:
        raise InvalidInput(f"{field} = {pattern!r} is not accepted: no file has such a name")
    return files


def list_files(field: str, place: str, filesystem: "fs.FileSystem", base: str, *, recursive: bool = True) -> list[SourceFile]:
    """List all files in a folder and, if recursive, below it, sorted by path; hidden ones are left out.

    Raises:
        InvalidInput: there is no such folder.
    """
    from pyarrow import fs

    try:
        infos = filesystem.get_file_info(fs.FileSelector(base, recursive=recursive))
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidInput(f"{field} = {place!r} is not accepted: there is no folder {base}") from None
    files = [
        SourceFile(filesystem, info.path, _shown(place, info.path), info.size, info.mtime_ns or 0)
        for info in infos
        if info.is_file and not info.base_name.startswith(".")
    ]
    return sorted(files, key=lambda file: file.path)


def open_place(field: str, place: str) -> "tuple[fs.FileSystem, str]":
    """The filesystem of a path or an address, and the path on it.

    Raises:
        InvalidInput: the address is not accepted.
        StoreError: the object store cannot be reached.
    """
    from pyarrow import fs

    if "://" not in place:
        return fs.LocalFileSystem(), str(Path(place).expanduser().absolute())
    with store_faults(f"{field} = {place!r} cannot be reached"):
        return open_filesystem(place)


def watch_files(field: str, patterns: Sequence[str]) -> Callable[[], None]:
    """Note the files that paths and patterns name by now; the function that is returned refuses any change since.

    A path or pattern that names none, or what only its reader reaches, is left alone: whoever reads it says so. So are folders.
    """

    def find() -> list[SourceFile]:
        files: list[SourceFile] = []
        for pattern in patterns:
            with contextlib.suppress(HalvingError, OSError):
                files += find_files(field, pattern, folders=False)
        return list({file.shown: file for file in files}.values())

    return refuse_changes(field, find(), find)


def watch_dataset(field: str, files: "dataset.FileSystemDataset") -> Callable[[], None]:
    """Note the files of a ``pyarrow.dataset`` as they are by now; the function that is returned refuses any change since."""

    def find() -> list[SourceFile]:
        infos = files.filesystem.get_file_info(files.files)
        return [SourceFile(files.filesystem, info.path, info.path, info.size, info.mtime_ns or 0) for info in infos if info.is_file]

    return refuse_changes(field, find(), find)


def refuse_changes(field: str, before: list[SourceFile], find: Callable[[], list[SourceFile]]) -> Callable[[], None]:
    """The function that looks again, and refuses what was changed, deleted or added since; it raises :class:`InvalidInput`."""

    def check() -> None:
        now = {file.identity for file in find()}
        changed = [file.shown for file in before if file.identity not in now]
        if changed or len(now) != len(before):
            what = f"{changed[:_SHOWN]} changed" if changed else f"{len(now) - len(before)} files were added"
            raise InvalidInput(
                f"{field} is not accepted: {what} while it was read, so the rows may be of two states; read it again when nothing writes "
                "there, or write new files under new names elsewhere first"
            )

    return check


def _fits(path: str, pattern: str) -> bool:
    """Whether a path matches, where ``*`` stays within a folder and ``**`` does not."""
    if "**" in pattern:
        return fnmatch.fnmatchcase(path, pattern.replace("**/", "*").replace("**", "*"))
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


def _shown(place: str, path: str) -> str:
    scheme, mark, _ = place.partition("://")
    return f"{scheme}://{path}" if mark else path
