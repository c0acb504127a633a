"""The files of an artifact while it is being made: added one by one, as they are at that time."""

import contextlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from halving.store.store import digest_of
from halving.wandb.artifact_entries import Entry, Manifest, files_below_links, references_of
from halving.wandb.wb_value import WBValue

_FINAL = "Can't add to finalized artifact {!r}: make a new wandb.Artifact, and log that"


class Draft:
    """Files under a name, which may change until they are logged."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._manifest = Manifest()
        self._staging: Path | None = None

    def is_draft(self) -> bool:
        """Whether it is still to be logged."""
        return True

    def add_file(
        self,
        local_path: str | Path,
        name: str | None = None,
        is_tmp: bool = False,
        skip_cache: bool = False,
        policy: str = "mutable",
        overwrite: bool = False,
    ) -> Entry:
        """Add a file, as it is now: with ``policy="immutable"`` it is not copied until it is logged."""
        self._check_draft()
        source = Path(local_path)
        if not source.is_file():
            raise ValueError(f"Path is not a file: {str(local_path)!r}")
        if policy not in ("mutable", "immutable"):
            raise ValueError(f"Invalid policy {policy!r}. Must be 'mutable' or 'immutable'.")
        digest = digest_of(source)
        if policy == "mutable":
            source = self._copy(source, digest)
        entry = Entry(name or Path(local_path).name, digest, source.stat().st_size, local_path=str(source))
        self._manifest.add(entry, overwrite=overwrite)
        return entry

    def add_dir(
        self,
        local_path: str | Path,
        name: str | None = None,
        skip_cache: bool = False,
        policy: str = "mutable",
        merge: bool = False,
    ) -> None:
        """Add all files of a folder, below ``name`` if it is given."""
        self._check_draft()
        folder = Path(local_path)
        if not folder.is_dir():
            raise ValueError(f"Path is not a directory: {str(local_path)!r}")
        for inner, path in files_below_links(folder):
            target = inner
            if name:
                target = f"{name.strip('/')}/{inner}"
            self.add_file(path, target, policy=policy, overwrite=merge)

    def add_reference(
        self,
        uri: Any,
        name: str | None = None,
        checksum: bool = True,
        max_objects: int | None = None,
    ) -> Sequence[Entry]:
        """Add what is at an address, by this address: only that is stored."""
        self._check_draft()
        if isinstance(uri, Entry):
            uri = uri.ref_target()
        entries = references_of(str(uri), name, checksum)
        if max_objects is not None and len(entries) > max_objects:
            raise ValueError(f"Exceeded {max_objects} objects tracked, pass max_objects to add_reference")
        for entry in entries:
            self._manifest.add(entry)
        return entries

    @contextlib.contextmanager
    def new_file(
        self, name: str, mode: str = "x", encoding: str | None = None, policy: str = "mutable"
    ) -> Iterator[IO[Any]]:
        """Open a new file, which is in the artifact when it is closed."""
        self._check_draft()
        if name in self._manifest.entries and "x" in mode:
            raise ValueError(f"File with name {name!r} already exists in the artifact")
        with tempfile.NamedTemporaryFile(dir=self._folder(), delete=False) as place:
            path = Path(place.name)
        with path.open(mode.replace("x", "w"), encoding=encoding) as file:
            yield file
        self.add_file(path, name, policy="immutable", overwrite="x" not in mode)

    def add(self, obj: WBValue, name: str, overwrite: bool = False) -> Entry:
        """Add a data type, such as a table, which :meth:`get` gives back by its name."""
        self._check_draft()
        stored = obj.to_media()
        if isinstance(stored, Mapping):
            stored = stored["image"]
        path = f"{name}.{obj._log_type}{stored.suffix}"
        with self.new_file(path, "wb" if overwrite else "xb") as file:
            file.write(stored.encode())
        return self._manifest.entries[path]

    def __setitem__(self, name: str, item: WBValue) -> None:
        self.add(item, name)

    def remove(self, item: str | Path | Entry) -> None:
        """Take out a file, or all files of a folder."""
        self._check_draft()
        path = item.path if isinstance(item, Entry) else str(item)
        paths = [path] if path in self._manifest.entries else []
        paths += [entry.path for entry in self._manifest.get_entries_in_directory(path)]
        if not paths:
            raise FileNotFoundError(f"No such file or directory: {path}")
        for each in paths:
            del self._manifest.entries[each]

    def _check_draft(self) -> None:
        if not self.is_draft():
            raise ValueError(_FINAL.format(self._name))

    def _folder(self) -> Path:
        """A folder for copies of its files, which is deleted with it."""
        if self._staging is None:
            self._staging = Path(tempfile.mkdtemp(prefix="halving-artifact-"))
            weakref.finalize(self, _delete, self._staging, os.getpid())
        return self._staging

    def _copy(self, source: Path, digest: str) -> Path:
        target = self._folder() / digest.removeprefix("sha256:")
        if not target.exists():
            part = target.with_suffix(".part")
            shutil.copyfile(source, part)
            if digest_of(part) != digest:
                raise ValueError(f"{source} changed while it was added: add it when it is complete")
            part.replace(target)
        return target


def _delete(folder: Path, process: int) -> None:
    """Delete copies, unless a forked child ends, whose parent has them still to log."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)
