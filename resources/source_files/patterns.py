"""Which files a path or a pattern names.

A name that exists is taken literally, before its marks stand for anything. Names of tools' own files are no
data.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from urllib.parse import unquote

from halving.errors import InvalidInput

if TYPE_CHECKING:
    from pyarrow import fs

DELTA_LOG = "_delta_log"
_MARKS = frozenset("*?[")
_OF_SYSTEMS = frozenset({"Thumbs.db", "desktop.ini", "__MACOSX"})
_OF_WRITERS = frozenset({"_SUCCESS", "_temporary"})


def split_pattern(filesystem: "fs.FileSystem", path: str) -> tuple[str, list[str]]:
    """Split a path into the part that exists as it is written, and the pattern's segments below it.

    ``exports [final]/*.csv`` is the pattern ``*.csv`` in that folder, if it exists. A path without a mark has
    no segments.
    """
    from pyarrow import fs

    names = path.split("/")
    for place, name in enumerate(names):
        if _MARKS.isdisjoint(name):
            continue
        if (
            name == "**"
            or filesystem.get_file_info("/".join(names[: place + 1])).type == fs.FileType.NotFound
        ):
            return "/".join(names[:place]) or "/", names[place:]
    return path, []


def check_stars(field: str, pattern: str, wanted: Sequence[str]) -> None:
    """Refuse ``**`` within a name, where it would not match folders.

    Raises:
        InvalidInput: a segment of the pattern has them.
    """
    for segment in wanted:
        if "**" in segment and segment != "**":
            instead = pattern.replace(segment, f"**/{re.sub(r'[*]+', '*', segment)}")
            raise InvalidInput(
                f"{field} = {pattern!r} is not accepted: '**' stands for folders: write {instead}"
            )


def fits(names: Sequence[str], wanted: Sequence[str], hidden: bool = False) -> bool:
    """Whether a pattern names a file.

    Args:
        names: names of the file's folders, and its own.
        wanted: the pattern's segments; ``**`` is any number of folders, or as the last one all files below.
        hidden: whether names that are no data count like others.
    """
    if not wanted:
        return not names
    if not names:
        return list(wanted) == ["**"]
    if wanted[0] == "**":
        return fits(names, wanted[1:], hidden) or (
            (hidden or is_data(names[0])) and fits(names[1:], wanted, hidden)
        )
    return (
        (hidden or may_be(names[0], wanted[0]))
        and _is_named(names[0], wanted[0])
        and fits(names[1:], wanted[1:], hidden)
    )


def is_data(name: str) -> bool:
    """Whether a file or folder of this name holds rows.

    Names that begin with ``_`` or ``.`` belong to tools, unless they are a partition's folder.
    """
    return name[:1] != "." and (name[:1] != "_" or "=" in name) and name not in _OF_SYSTEMS


def is_file_of_a_folder(name: str) -> bool:
    """Whether a file of this name is a row, where each file is one.

    Here ``_`` is allowed: cameras write ``_DSC0001.JPG``, and classes may be called ``_background_noise_``.
    """
    return name[:1] != "." and name not in _OF_SYSTEMS and name not in _OF_WRITERS


def may_be(name: str, segment: str) -> bool:
    """Whether a segment of a pattern may stand for a name.

    A name that is no data is matched only by a segment that begins with the same mark, as in a shell.
    """
    return is_data(name) or name == segment or (name[:1] in ("_", ".") and segment[:1] == name[:1])


def names_below(base: str, path: str) -> list[str]:
    """The names of a path's folders below a base, and its own."""
    return path[len(base) :].lstrip("/").split("/")


def partition_of(folder: str) -> tuple[str, str] | None:
    """The column and the text in a folder's name, ``country=de``; None if it is no partition."""
    column, mark, text = folder.partition("=")
    if not (column and mark):
        return None
    return unquote(column), text


def above_partitions(folder: str) -> str:
    """The folder above a partition's folders: ``sales`` of ``sales/country=de/day=3``."""
    above, _, name = folder.rpartition("/")
    if partition_of(name) is None:
        return folder
    return above_partitions(above)


def _is_named(name: str, segment: str) -> bool:
    return name == segment or fnmatchcase(name, segment)
