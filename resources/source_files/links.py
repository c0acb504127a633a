"""Links on this machine's disk: a file that is reached in two ways is read once, and link cycles end."""

import contextlib
import os
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from resources.source_files.patterns import names_below, partition_of

_Values: TypeAlias = frozenset[tuple[str, str]]  # partition columns and their values
_AT_ONCE = 4_096  # folders that are remembered, which suffices because paths come sorted


def find_doubles(base: str, paths: Callable[[], Iterable[str]]) -> set[str]:
    """Find the paths that lead by a link to a file that is also listed without one.

    A link to a file elsewhere counts as a file of its own: a store of contents, like DVC's, keeps equal files
    once, and links to it from each place. So does a link whose folders say other partition values than the
    file's (``country=fr`` beside ``country=de``).

    Args:
        base: folder that all paths are below.
        paths: makes the paths anew for each pass, because a list of a million would take much memory.
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
    """Whether a folder is a link to one of its parents, whose files would be listed again and again."""
    if not Path(folder).is_symlink():
        return False
    real = os.path.realpath(folder)
    return any(os.path.realpath(above) == real for above in Path(folder).parents)


def _values_of(base: str, path: str) -> _Values:
    """The partition values in the names of a file's folders."""
    return frozenset(filter(None, map(partition_of, names_below(base, path)[:-1])))


def _links_in(folder: str) -> frozenset[str]:
    """The names of the links in a folder; the system lists them with the names, so no file is read."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries if entry.is_symlink())
    return frozenset()
