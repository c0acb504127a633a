"""Links on this machine's disk: a file that is reached in two ways has its rows once, and a link to a folder
above it has an end.
"""

import contextlib
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from resources.source_files.patterns import names_below, partition_of

_Values: TypeAlias = frozenset[tuple[str, str]]  # of partition columns, by name
_AT_ONCE = 4_096  # folders that are remembered; paths come sorted


def find_doubles(base: str, paths: Callable[[], Iterable[str]]) -> set[str]:
    """Find the paths that lead by a link to a file that is there without one, too.

    Links to a file elsewhere are files each: a store of contents, as DVC's, keeps equal files once, and links
    to it from each place. So is a link to a file beside which its folders say other values (``country=fr``
    beside ``country=de``).

    Args:
        base: the folder that all of them are below.
        paths: gives them, each time anew, since a million of them as Python's would take much memory.
    """
    links_in = lru_cache(_AT_ONCE)(_links_in)

    @lru_cache(_AT_ONCE)
    def is_behind_link(folder: str) -> bool:
        above, _, name = folder.rpartition("/")
        return len(folder) > len(base) and (name in links_in(above or "/") or is_behind_link(above or "/"))

    def is_link(path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return name in links_in(folder or "/") or is_behind_link(folder or "/")

    targets = {path: os.path.realpath(path) for path in paths() if is_link(path)}
    if not targets:
        return set()
    real_base = os.path.realpath(base).rstrip("/")
    wanted = set(targets.values())
    values_of_files: dict[str, _Values] = {}
    for path in paths():
        place = f"{real_base}/{'/'.join(names_below(base, path))}"
        if path not in targets and place in wanted:
            values_of_files[place] = _values_of(base, path)
    return {
        path
        for path, target in targets.items()
        if target in values_of_files
        and (_values_of(base, path) == values_of_files[target] or is_behind_link(path.rpartition("/")[0]))
    }


def leads_back(folder: str) -> bool:
    """Whether a folder is a link to one that it lies in, whose files would be listed again and again."""
    if not Path(folder).is_symlink():
        return False
    real = os.path.realpath(folder)
    return any(os.path.realpath(above) == real for above in Path(folder).parents)


def _values_of(base: str, path: str) -> _Values:
    """What the names of a file's folders say."""
    return frozenset(filter(None, map(partition_of, names_below(base, path)[:-1])))


def _links_in(folder: str) -> frozenset[str]:
    """The names of the links in a folder: the system says it with their names, so that no file is asked."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries if entry.is_symlink())
    return frozenset()
