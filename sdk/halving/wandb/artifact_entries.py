"""What an artifact consists of: files by their paths in it, and references to what is elsewhere."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from halving.errors import InvalidInput
from halving.identifiers import is_artifact_name
from halving.store.json_files import to_json
from halving.store.store import blob_name, digest_of

if TYPE_CHECKING:
    from halving.wandb.artifacts import Artifact

MAX_ENTRIES = 100_000


@dataclass
class Entry:
    """A file of an artifact, or a reference.

    Attributes:
        path: in the artifact, with slashes.
        digest: of the content, ``sha256:…``; of a reference to something elsewhere, of its address.
        size: in bytes; None where it is elsewhere.
        ref: the address of what is elsewhere.
        local_path: where the content is, until it is stored.
    """

    path: str
    digest: str
    size: int | None
    ref: str | None = None
    local_path: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    artifact: "Artifact | None" = field(default=None, repr=False, compare=False)

    def download(self, root: str | None = None, skip_cache: bool | None = None, executor: Any = None) -> str:
        """Copy the file into a folder (default: the artifact's), and return its path."""
        if self.artifact is None:
            raise ValueError(f"{self.path} is not stored yet: log its artifact first")
        return self.artifact._download_entry(self, root)

    def ref_target(self) -> str:
        """The address of a reference.

        Raises:
            ValueError: it is a file.
        """
        if self.ref is None:
            raise ValueError("Only reference entries support ref_target().")
        return self.ref


class Manifest:
    """The entries of an artifact, by path."""

    def __init__(self, entries: Mapping[str, Entry] | None = None) -> None:
        self.entries: dict[str, Entry] = dict(entries or {})

    def __len__(self) -> int:
        return len(self.entries)

    def add(self, entry: Entry, *, overwrite: bool = False) -> None:
        """Add an entry.

        Raises:
            ValueError: the path is no plain one, or has another content already.
        """
        if not is_artifact_name(entry.path):
            raise ValueError(
                f"path {entry.path!r:.200} is not accepted: give a relative path without '.', '..' and "
                "control characters"
            )
        before = self.entries.get(entry.path)
        if before is not None and before.digest != entry.digest and not overwrite:
            raise ValueError(f"Cannot add the same path twice: {entry.path!r}")
        if len(self.entries) >= MAX_ENTRIES and before is None:
            raise ValueError(f"an artifact has at most {MAX_ENTRIES:,} files: pack them into an archive")
        self.entries[entry.path] = entry

    def get_entry_by_path(self, path: str) -> Entry | None:
        return self.entries.get(path)

    def get_entries_in_directory(self, directory: str) -> list[Entry]:
        """The entries below a folder."""
        prefix = f"{directory.rstrip('/')}/"
        return [entry for path, entry in self.entries.items() if path.startswith(prefix)]

    def digest(self) -> str:
        """Of all paths and contents, in hex: equal artifacts have equal ones."""
        hashed = hashlib.sha256(b"halving-artifact-v1\n")
        for path, entry in sorted(self.entries.items()):
            hashed.update(f"{path}:{entry.digest}\n".encode())
        return hashed.hexdigest()

    def size(self) -> int:
        """The bytes of all files together."""
        return sum(entry.size or 0 for entry in self.entries.values())

    def encode(self, facts: Mapping[str, Any]) -> bytes:
        """The manifest as it is stored, beside an artifact's other facts."""
        entries = {}
        for path, entry in sorted(self.entries.items()):
            entries[path] = {"digest": entry.digest, "size": entry.size}
            if entry.ref is not None:
                entries[path]["ref"] = entry.ref
        return to_json({**facts, "entries": entries})

    @classmethod
    def parse(cls, content: bytes) -> tuple["Manifest", dict[str, Any]]:
        """The manifest and the other facts of what :meth:`encode` gave.

        Raises:
            InvalidInput: it is no such content.
        """
        try:
            facts = json.loads(content)
            manifest = cls()
            for path, fields in facts.pop("entries").items():
                if fields.get("ref") is None:
                    blob_name(fields["digest"])
                manifest.add(Entry(path, fields["digest"], fields["size"], fields.get("ref")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(f"an artifact's manifest is damaged: {error}") from None
        return manifest, facts


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a folder with their paths in it, in order; links to folders are left out."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def files_below_links(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a folder and of the folders that it links to, in order, as W&B adds them.

    A link to a folder above itself is left out.
    """
    reached = {str(folder): frozenset[str]()}
    paths = []
    for place, names, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in reached[place]:
            names.clear()
            continue
        reached |= {str(Path(place, name)): reached[place] | {real} for name in names}
        paths += [Path(place, name) for name in files]
    for path in sorted(paths):
        if path.is_file():
            yield path.relative_to(folder).as_posix(), path


def references_of(uri: str, name: str | None, checksum: bool) -> list[Entry]:
    """The entries of a reference: of a ``file://`` folder one for each file in it.

    Raises:
        ValueError: it is no address, or nothing is there.
    """
    address = urlsplit(uri)
    if not address.scheme:
        raise ValueError("References must be URIs. To reference a local file, use file://")
    if address.scheme != "file":
        path = name or address.path.rstrip("/").rpartition("/")[2] or address.netloc
        digest = f"sha256:{hashlib.sha256(uri.encode()).hexdigest()}"
        return [Entry(path, digest, None, ref=uri)]
    source = Path(url2pathname(address.path))
    if source.is_file():
        return [_file_reference(name or source.name, source, checksum)]
    if source.is_dir():
        prefix = f"{name}/" if name else ""
        return [
            _file_reference(f"{prefix}{inner}", path, checksum) for inner, path in files_below_links(source)
        ]
    raise ValueError(f"Path {str(source)!r} must be a valid file or directory path")


def _file_reference(name: str, path: Path, checksum: bool) -> Entry:
    address = path.absolute().as_uri()
    digest = f"sha256:{hashlib.sha256(address.encode()).hexdigest()}"
    if checksum:
        digest = digest_of(path)
    return Entry(name, digest, path.stat().st_size, ref=address)
