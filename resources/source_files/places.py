"""The places outside of the store that specs from HTTP may read: those that the administrator lists."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from halving.errors import InvalidInput
from halving.store.filesystem import check_address
from resources.source_files.listing import SourceFiles

VARIABLE = "HALVING_SOURCES"
"""Variable that lists the places, separated by commas: ``/data/teams, s3://lake/clicks, iceberg:lake``."""

_CATALOG = "iceberg:"
_AT_ONCE = 65_536  # paths that are Python objects at a time


@dataclass(frozen=True)
class Places:
    """Folders, files, addresses and Iceberg catalogs (``iceberg:NAME``), each with all that is below it.

    The textual checks read no disk, so a server without the code location's disk can make them; whoever reads
    the files makes the others, too.
    """

    entries: tuple[str, ...] = ()

    @property
    def paths(self) -> list[str]:
        """The places on this machine's disk."""
        return [entry for entry in self.entries if entry.startswith("/")]

    def check(self, field: str, place: str) -> None:
        """Refuse a path, a pattern or an address that by its text is not below a place.

        Raises:
            InvalidInput: naming the field, what it has and which places are listed.
        """
        if reason := self._reason_against(place):
            raise self.refusal(field, place, reason)

    def check_catalog(self, field: str, name: str) -> None:
        """Refuse an Iceberg catalog that is not listed.

        Raises:
            InvalidInput: as :meth:`check`.
        """
        if f"{_CATALOG}{name}" not in self.entries:
            raise self.refusal(field, name, f"{_CATALOG}{name} is not listed")

    def check_files(self, field: str, place: str, files: SourceFiles) -> None:
        """Refuse files of this machine's disk that really lie elsewhere, because of a link.

        Raises:
            InvalidInput: as :meth:`check`; it names the link, and nothing that is behind it.
        """
        from pyarrow import fs

        for listing in files.listings:
            if isinstance(listing.filesystem, fs.LocalFileSystem):
                for batch in listing.table.to_batches(_AT_ONCE):
                    self.check_links(field, place, batch.column("path").to_pylist())

    def check_links(self, field: str, place: str, paths: Iterable[str]) -> None:
        """Refuse paths of this machine's disk that lead outside of the places by a link.

        Raises:
            InvalidInput: as :meth:`check_files`.
        """
        real = [os.path.realpath(path) for path in self.paths]
        folders: dict[str, bool] = {}
        for path in paths:
            folder = path.rpartition("/")[0]
            if folder not in folders:
                folders[folder] = _is_below(os.path.realpath(folder), real)
            is_inside = folders[folder] and not Path(path).is_symlink()
            if not is_inside and not _is_below(os.path.realpath(path), real):
                raise self.refusal(field, place, f"{_link_of(path, real)} leads to another place")

    def refusal(self, field: str, value: str, reason: str) -> InvalidInput:
        """The error for a value that is not accepted over HTTP; it says what is."""
        return InvalidInput(
            f"{field} = {value!r:.200} is not accepted over HTTP: {reason}; "
            "give a snapshot, a function of the code location, "
            f"or a place that {VARIABLE} lists: {', '.join(self.entries) or 'none is listed'}"
        )

    def _reason_against(self, place: str) -> str | None:
        if any(ord(letter) < ord(" ") for letter in place):
            return "it has a control character"
        if "://" in place:
            return _reason_against_address(place, [entry for entry in self.entries if "://" in entry])
        if not place.startswith("/"):
            return "it is no absolute path"
        names = _names(place)
        if ".." in names:
            return "it has .. in it"
        if not any(names[: len(above)] == above for above in map(_names, self.paths)):
            return "it is not below such a place"
        return None


def listed_places(variables: Mapping[str, str] | None = None) -> Places:
    """The places that :data:`VARIABLE` lists; none if it is not set.

    Args:
        variables: environment variables (default: this process's).

    Raises:
        InvalidInput: it lists something else.
    """
    if variables is None:
        variables = os.environ
    value = variables.get(VARIABLE, "")
    entries = tuple(entry for entry in map(str.strip, value.split(",")) if entry)
    for entry in entries:
        check_address(entry)
        is_file = entry.lower().startswith("file:")
        is_catalog = entry.startswith(_CATALOG) and len(entry) > len(_CATALOG) and "/" not in entry
        is_place = (entry.startswith("/") or "://" in entry) and ".." not in _names(entry) and not is_file
        if not (is_catalog or is_place):
            raise InvalidInput(
                f"{VARIABLE} = {value!r} is not accepted: {entry!r} is neither an absolute path, "
                f"nor an address (s3://bucket/folder), nor {_CATALOG}CATALOG; write commas between them"
            )
    return Places(entries)


def _reason_against_address(address: str, entries: Iterable[str]) -> str | None:
    parts = _parts(address)
    # Some readers decode %2e and others do not, so the path must stay inside both ways.
    ways = (parts.path, unquote(parts.path))
    if any(".." in way.split("/") for way in ways):
        return "it has .. in it"
    for entry in map(_parts, entries):
        if (entry.scheme, entry.netloc, entry.query) == (parts.scheme, parts.netloc, parts.query):
            above = entry.path.rstrip("/")
            if all(way == above or way.startswith(f"{above}/") for way in ways):
                return None
    return "it is not below such a place"


def _parts(address: str) -> SplitResult:
    try:
        return urlsplit(address, allow_fragments=False)
    except ValueError:  # There are brackets in place of a host.
        return SplitResult("", address, "", "", "")


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place.rstrip('/')}/") for place in places)


def _link_of(path: str, places: list[str]) -> str:
    """The first link of a path that leads out of the places."""
    for above in (*reversed(Path(path).parents), Path(path)):
        if above.is_symlink() and not _is_below(os.path.realpath(above), places):
            return str(above)
    return path
