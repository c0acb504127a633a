"""List the files that a path or a pattern names, and check later whether they have changed.

They lie on this machine or on an object store.
"""

import contextlib
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from halving.errors import HalvingError, InvalidInput
from halving.store.faults import store_faults
from halving.store.filesystem import open_filesystem
from resources.source_files.links import find_doubles, leads_back
from resources.source_files.patterns import (
    DELTA_LOG,
    above_partitions,
    check_stars,
    fits,
    is_data,
    may_be,
    names_below,
    split_pattern,
)

if TYPE_CHECKING:
    from pyarrow import dataset, fs

_MAX_NAMED = 3  # files named in a message
_AT_ONCE = 65_536  # files whose names are Python objects at a time
_COLUMNS = pa.schema([("path", pa.large_string()), ("size", pa.int64()), ("written", pa.int64())])


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was when it was listed.

    Attributes:
        path: on the filesystem.
        address: its path, or its address on an object store, as messages and lineage have it.
        size: in bytes.
        written: nanoseconds since 1970.
        base: folder below which names of folders may be partitions.
    """

    filesystem: "fs.FileSystem"
    path: str
    address: str
    size: int
    written: int
    base: str

    @property
    def identity(self) -> str:
        """A text that changes when the file is written again."""
        return f"{self.address} {self.size} {self.written}"


@dataclass(frozen=True)
class _Listing:
    """Files of one filesystem below a base: their paths, sizes and times.

    ``prefix`` stands before the path in an address.
    """

    filesystem: "fs.FileSystem"
    prefix: str
    base: str
    table: pa.Table

    def addresses(self) -> pa.ChunkedArray:
        return pc.binary_join_element_wise(
            pa.scalar(self.prefix, pa.large_string()), self.table["path"], pa.scalar("", pa.large_string())
        )

    def identities(self) -> pa.ChunkedArray:
        """The :attr:`SourceFile.identity` of each file."""
        size, written = (self.table[name].cast(pa.large_string()) for name in ("size", "written"))
        return pc.binary_join_element_wise(self.addresses(), size, written, pa.scalar(" ", pa.large_string()))


class SourceFiles(Sequence[SourceFile]):
    """The files that one or several patterns name, each once.

    They are kept in Arrow: a million take about 100 MB.
    """

    def __init__(self, listings: Sequence[_Listing]) -> None:
        self.listings = [listing for listing in listings if listing.table.num_rows]
        self._starts = list(accumulate((listing.table.num_rows for listing in self.listings), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __iter__(self) -> Iterator[SourceFile]:
        for listing in self.listings:
            for batch in listing.table.to_batches(_AT_ONCE):
                for path, size, written in zip(
                    *(column.to_pylist() for column in batch.columns), strict=True
                ):
                    yield SourceFile(
                        listing.filesystem, path, listing.prefix + path, size, written, listing.base
                    )

    @overload
    def __getitem__(self, number: int) -> SourceFile: ...
    @overload
    def __getitem__(self, number: slice) -> list[SourceFile]: ...
    def __getitem__(self, number: int | slice) -> SourceFile | list[SourceFile]:
        if isinstance(number, slice):
            return [self[each] for each in range(*number.indices(len(self)))]
        # Indexing a range resolves negative numbers, and raises IndexError.
        number = range(len(self))[number]
        of_listing = bisect_right(self._starts, number) - 1
        listing = self.listings[of_listing]
        path, size, written = (
            column[number - self._starts[of_listing]].as_py() for column in listing.table.columns
        )
        return SourceFile(listing.filesystem, path, listing.prefix + path, size, written, listing.base)

    def matching(self, is_match: Callable[[str], bool]) -> "SourceFiles":
        """The files whose path meets a condition."""
        listings = []
        for listing in self.listings:
            mask = pa.array(
                (is_match(path) for chunk in listing.table["path"].chunks for path in _texts(chunk)),
                pa.bool_(),
            )
            listings.append(replace(listing, table=listing.table.filter(mask)))
        return SourceFiles(listings)


def find_files(field: str, pattern: str, *, folders: bool = True, hidden: bool = False) -> SourceFiles:
    """Find the files that a path or a pattern names, sorted by path.

    A path that exists is taken as it is, before it is taken as a pattern. ``*`` stays within a folder, and
    the segment ``**`` does not; a folder's path names all files below it.

    Args:
        field: field that has the pattern, for messages.
        folders: whether a folder's path names the files below it; otherwise it names none.
        hidden: whether names that begin with ``_`` or ``.`` are data, too.

    Raises:
        InvalidInput: there is none.
        StoreError: the object store cannot be reached.
    """
    filesystem, path = open_place(field, pattern)
    with store_faults(f"{field} = {pattern!r} cannot be read"):
        base, wanted = split_pattern(filesystem, path)
        info = None
        if not wanted:
            info = filesystem.get_file_info(path)
    if info is not None and info.is_file:
        return _files_of(filesystem, pattern, path.rpartition("/")[0], [info])
    if info is not None and not folders:
        return SourceFiles([])
    wanted = wanted or ["**"]
    if not hidden:
        check_stars(field, pattern, wanted)

    def may_fit(name: str) -> bool:
        return hidden or is_data(name) or any(may_be(name, segment) for segment in wanted)

    logs: list[str] = []
    listed = list_files(
        field, pattern, filesystem, base, may_fit, recursive=wanted == ["**"] or len(wanted) > 1, logs=logs
    )
    files = _without_doubles(
        listed.matching(lambda name: fits(names_below(base, name), wanted, hidden)), base
    )
    if not files:
        why = ""
        if not hidden:
            why = _not_data(lambda: find_files(field, pattern, hidden=True))
        raise InvalidInput(f"{field} = {pattern!r} is not accepted: no file has such a name{why}")
    if not hidden:
        _refuse_delta(field, pattern, files, logs)
    return files


def _without_doubles(files: SourceFiles, base: str) -> SourceFiles:
    """Leave out paths of this machine's disk that lead by a link to another file of the list."""
    from pyarrow import fs

    listings = [listing for listing in files.listings if isinstance(listing.filesystem, fs.LocalFileSystem)]

    def paths() -> Iterator[str]:
        return (
            path for listing in listings for chunk in listing.table["path"].chunks for path in _texts(chunk)
        )

    doubles = find_doubles(base, paths)
    if not doubles:
        return files
    return files.matching(lambda path: path not in doubles)


def _refuse_delta(field: str, pattern: str, files: SourceFiles, logs: Sequence[str]) -> None:
    """Refuse files of a Delta table, some of which hold rows that were deleted from it.

    Args:
        logs: folders of logs of Delta tables that were listed.
    """
    from pyarrow import fs

    listing = files.listings[0]
    above = f"{listing.base.rstrip('/')}/{DELTA_LOG}"  # not listed if a partition's folder is
    with store_faults(f"{field} = {pattern!r} cannot be read"):
        is_there = listing.filesystem.get_file_info(above).type == fs.FileType.Directory
    if is_there:
        logs = [*logs, above]
    for log in logs:
        if files.matching(partial(_is_of_table, log)):
            table = log.rpartition("/")[0]
            raise InvalidInput(
                f"{field} = {pattern!r} is not accepted: {table} is a Delta table, "
                "whose files hold rows that were deleted, too; give delta: … and version: …"
            )


def _is_of_table(log: str, path: str) -> bool:
    """Whether a file belongs to the Delta table with this log."""
    return path.startswith(log.removesuffix(DELTA_LOG)) and not path.startswith(f"{log}/")


def _not_data(find: Callable[[], SourceFiles]) -> str:
    """For a message: how many files there would be if hidden ones counted."""
    try:
        count = len(find())
    except InvalidInput:
        return ""
    return f" ({count} of them or their folders begin with _ or ., which is no data)"


def find_files_of_all(field: str, patterns: Sequence[str]) -> SourceFiles:
    """Find the files that several patterns name, in the order of the patterns, each file once.

    Raises:
        InvalidInput, StoreError: as :func:`find_files`.
    """
    files = _each_once([find_files(field, pattern) for pattern in patterns])
    # Only this machine's disk has links.
    bases = [listing.base for listing in files.listings if listing.base.startswith("/")]
    if len(patterns) > 1 and bases:
        return _without_doubles(files, os.path.commonpath(bases))
    return files


def list_files(
    field: str,
    place: str,
    filesystem: "fs.FileSystem",
    base: str,
    is_data: Callable[[str], bool],
    *,
    recursive: bool = True,
    logs: list[str] | None = None,
) -> SourceFiles:
    """List the files in a folder and, if recursive, below it, sorted by path.

    Args:
        is_data: whether a file of this name, or the content of a folder of this name, is listed.
        logs: list to which the folders of logs of Delta tables are added.

    Raises:
        InvalidInput: there is no such folder.
        StoreError: it cannot be listed.
    """
    from pyarrow import fs

    def infos() -> "Iterator[fs.FileInfo]":
        for info in _infos(filesystem, base, is_data, recursive):
            if logs is not None and info.type == fs.FileType.Directory and info.base_name == DELTA_LOG:
                logs.append(info.path)
            if all(map(is_data, names_below(base, info.path))):
                yield info

    with store_faults(f"{field} = {place!r} cannot be listed"):
        try:
            return _files_of(filesystem, place, base, infos())
        except (FileNotFoundError, NotADirectoryError) as error:
            is_there = filesystem.get_file_info(base).type == fs.FileType.Directory
            why = f"there is no folder {base}"
            if is_there:
                why = f"a folder went away while it was listed: {error}"
            raise InvalidInput(f"{field} = {place!r} is not accepted: {why}") from None
        except UnicodeDecodeError as error:
            name = bytes(error.object).rpartition(b"/")[2]
            raise InvalidInput(
                f"{field} = {place!r} is not accepted: the name {name!r} is not UTF-8; rename it"
            ) from None


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
    """Note the files that paths and patterns name now; the returned function refuses later changes.

    Paths that name nothing, folders, and what only the reader can reach are left alone: whoever reads them
    reports it.
    """

    def find() -> SourceFiles:
        files = []
        for pattern in patterns:
            with contextlib.suppress(HalvingError, OSError):
                files.append(find_files(field, pattern, folders=False, hidden=True))
        return _each_once(files)

    return refuse_changes(field, find(), find)


def watch_dataset(field: str, files: "dataset.FileSystemDataset") -> Callable[[], None]:
    """Note the files of a ``pyarrow.dataset``; the returned function refuses later changes."""

    def find() -> SourceFiles:
        return _files_of(files.filesystem, "", "", files.filesystem.get_file_info(files.files))

    return refuse_changes(field, find(), find)


def refuse_changes(field: str, before: SourceFiles, find: Callable[[], SourceFiles]) -> Callable[[], None]:
    """Make a function that lists the files again, and raises InvalidInput if any changed.

    Deleted and added files count as changes.
    """

    def check() -> None:
        now = find()
        if [listing.table for listing in now.listings] == [listing.table for listing in before.listings]:
            return
        raise InvalidInput(
            f"{field} is not accepted: {_what_changed(before, now)} while it was read, "
            "so the rows may be of two states; read it again when nothing writes there, "
            "or write new files under new names elsewhere first"
        )

    return check


def _what_changed(before: SourceFiles, now: SourceFiles) -> str:
    identities = _join_chunks([listing.identities() for listing in now.listings])
    changed: list[str] = []
    for listing in before.listings:
        is_changed = pc.invert(pc.is_in(listing.identities(), identities))
        changed += listing.addresses().filter(is_changed).slice(0, _MAX_NAMED).to_pylist()
    if changed:
        return f"{changed[:_MAX_NAMED]} changed"
    return f"{len(now) - len(before)} files were added"


def _each_once(files: Sequence[SourceFiles]) -> SourceFiles:
    """The files of all lists, each once."""
    if len(files) == 1:
        return files[0]
    listings: list[_Listing] = []
    for listing in (listing for of_pattern in files for listing in of_pattern.listings):
        is_new = pc.invert(
            pc.is_in(listing.addresses(), _join_chunks([earlier.addresses() for earlier in listings]))
        )
        listings.append(replace(listing, table=listing.table.filter(is_new)))
    return SourceFiles(listings)


def _join_chunks(arrays: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    return pa.chunked_array([chunk for array in arrays for chunk in array.chunks], pa.large_string())


def _infos(
    filesystem: "fs.FileSystem", base: str, is_data: Callable[[str], bool], recursive: bool
) -> "Iterator[fs.FileInfo]":
    """The entries of a folder, and of the folders below it if recursive.

    A local disk is listed folder by folder, so that answers are small and hidden folders are skipped; an
    object store, where each request takes long, all at once.
    """
    from pyarrow import fs

    if not recursive or not isinstance(filesystem, fs.LocalFileSystem):
        yield from filesystem.get_file_info(fs.FileSelector(base, recursive=recursive))
        return
    folders = [base]
    while folders:
        for info in filesystem.get_file_info(fs.FileSelector(folders.pop(), recursive=False)):
            if info.type == fs.FileType.Directory and is_data(info.base_name) and not leads_back(info.path):
                folders.append(info.path)
            yield info


def _files_of(
    filesystem: "fs.FileSystem", place: str, base: str, infos: "Iterable[fs.FileInfo]"
) -> SourceFiles:
    """The files among some entries, sorted by path."""
    scheme, mark, _ = place.partition("://")
    facts = ((info.path, info.size, info.mtime_ns or 0) for info in infos if info.is_file)
    tables = [_COLUMNS.empty_table()]
    while rows := list(islice(facts, _AT_ONCE)):
        tables.append(pa.table(list(zip(*rows, strict=True)), schema=_COLUMNS))
    table = pa.concat_tables(tables).sort_by("path").combine_chunks()
    prefix = ""
    if mark:
        prefix = f"{scheme}://"
    return SourceFiles([_Listing(filesystem, prefix, above_partitions(base), table)])


def _texts(chunk: pa.Array) -> Iterator[Any]:
    """Strings of Arrow as Python's, converted in blocks."""
    for begin in range(0, len(chunk), _AT_ONCE):
        yield from chunk.slice(begin, _AT_ONCE).to_pylist()
