"""A logged version of an artifact: its files in the store, and what can be changed of it."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from halving.errors import AlreadyExists
from halving.query.runs import in_threads
from halving.store.retry import retry_while_unavailable
from halving.store.server_store import ServerStore
from halving.store.store import Store, blob_name, digest_of
from halving.wandb.artifact_entries import Entry, Manifest
from halving.wandb.artifact_versions import Collection, Version, read_manifest
from halving.wandb.errors.term import termwarn

if TYPE_CHECKING:
    from halving.run.run import Run as HalvingRun


class StoredArtifact:
    """A version in the store.

    Attributes:
        aliases: as they were read, and as :meth:`write_changes` writes them.
    """

    def __init__(self, collection: Collection, version: Version) -> None:
        self.collection = collection
        self.version = version
        named = collection.aliases()
        self.aliases = [alias for alias, number in named.items() if number == version.number]
        self._written = list(self.aliases)
        self._facts: dict[str, Any] = {}

    @classmethod
    def log(
        cls,
        run: "HalvingRun",
        name: str,
        type_name: str,
        manifest: Manifest,
        metadata: Mapping[str, Any],
        description: str | None,
    ) -> "StoredArtifact":
        """Store the files as artifacts of the run, and a version that has them.

        First all content, then the version, then the run's records: whenever it is killed, a version that is
        there is whole for as long as retention leaves new blobs alone, and logging it again mends the rest.
        """
        store = run.store
        facts = {"name": name, "type": type_name, "description": description, "metadata": dict(metadata)}
        encoded = manifest.encode(facts)

        def log() -> StoredArtifact:
            collection = Collection(store, run.project, name)
            # Asked before anything is stored, which may be what a version of a deleted run lacks.
            same = _whole_version(collection, type_name, manifest.digest())
            in_threads(lambda entry: _put(store, entry), manifest.entries.values())
            digest = store.put_blob(encoded)
            version = same or collection.add(type_name, manifest.digest(), digest, manifest.size(), run.id)
            size = len(encoded)
            if same is not None:
                size = _put_manifest(store, collection, same)
            _attach(run, f"{name}:v{version.number}", manifest, version, size)
            stored = cls(collection, version)
            if same is not None and (metadata or description is not None):
                stored.write_changes(metadata, description)
            return stored

        return retry_while_unavailable(store, f"artifact {name} of {run.id}", log, run._grace)

    def read(self) -> tuple[Manifest, dict[str, Any]]:
        """The manifest, and the metadata and description as they are now.

        Raises:
            NotFound: the run that logged it was deleted.
        """
        content = read_manifest(blobs_of(self.collection, self.version), self.version, self.collection.name)
        manifest, facts = Manifest.parse(content)
        facts |= self.collection.changed_facts(self.version.number)
        self._facts = {name: facts[name] for name in ("metadata", "description")}
        return manifest, facts

    def add_aliases(self, aliases: list[str]) -> None:
        """Have aliases name this version from now on."""
        new = [alias for alias in aliases if alias not in self.aliases]
        if new:
            self.collection.change(self.version.number, aliases=new)
            self.aliases += new
            self._written += new

    def write_changes(self, metadata: Mapping[str, Any], description: str | None) -> None:
        """Write what has changed since it was read or logged."""
        fields: dict[str, Any] = {}
        facts = {"metadata": dict(metadata), "description": description}
        if not self._facts:
            self.read()
        fields |= {name: value for name, value in facts.items() if self._facts.get(name) != value}
        if added := [alias for alias in self.aliases if alias not in self._written]:
            fields["aliases"] = added
        if removed := [alias for alias in self._written if alias not in self.aliases]:
            fields["removed"] = removed
        if fields:
            self.collection.change(self.version.number, **fields)
        self._facts = facts
        self._written = list(self.aliases)

    def note_use(self, run: "HalvingRun") -> None:
        """Record that a run used the version: in the run, as ``used/NAME:vN``, and with the version."""
        name = f"used/{self.collection.name}:v{self.version.number}"
        if self.collection.project != run.project:
            name = f"used/{self.collection.project}/{self.collection.name}:v{self.version.number}"
        with contextlib.suppress(AlreadyExists):
            size = _put_manifest(run.store, self.collection, self.version)
            run.records.add_artifact(name, self.version.manifest, size)
        self.collection.note_use(self.version.number, run.id)

    def copy(self, entry: Entry, folder: Path, *, allow_missing: bool) -> str:
        """Copy a file into a folder, unless it is there, and return its path.

        Raises:
            ValueError: what a reference names is not on this machine, or has changed.
            NotFound: the run that logged the file was deleted.
        """
        target = folder / entry.path
        if target.is_file() and target.stat().st_size == entry.size and digest_of(target) == entry.digest:
            return str(target)
        if entry.ref is not None:
            return _copy_reference(entry, target, allow_missing=allow_missing)
        with _written_whole(target) as path, path.open("wb") as file:
            for part in blobs_of(self.collection, self.version).parts(blob_name(entry.digest)):
                file.write(part)
        if digest_of(target) != entry.digest:
            target.unlink()
            raise ValueError(f"Digest mismatch for file: {target}")
        return str(target)


def blobs_of(collection: Collection, version: Version) -> Store:
    """The store with a version's blobs: a server gives those of the run that logged them."""
    store = collection.store
    if isinstance(store, ServerStore):
        return store.of_run(f"{collection.project}/{version.run}")
    return store


def _put_manifest(store: Store, collection: Collection, version: Version) -> int:
    """Put a version's manifest again, so that no retention deletes it before a run names it; its size."""
    content = read_manifest(blobs_of(collection, version), version, collection.name)
    store.put_blob(content)
    return len(content)


def _put(store: Store, entry: Entry) -> None:
    """Store the content of a new file.

    Raises:
        ValueError: the file has changed since it was added.
    """
    if entry.local_path is not None and store.put_blob(Path(entry.local_path)) != entry.digest:
        raise ValueError(f"{entry.local_path} has changed since it was added as {entry.path!r}: add it again")


def _whole_version(collection: Collection, type_name: str, content: str) -> Version | None:
    """The newest version with this content, unless the run that logged it was deleted.

    Raises:
        ValueError: the artifact has versions of another type.
    """
    versions = collection.versions()
    if versions:
        collection.check_type(type_name, versions[-1])
    for version in reversed(versions):
        if version.content == content and blobs_of(collection, version).has_blob(version.manifest):
            return version
    return None


def _attach(run: "HalvingRun", name: str, manifest: Manifest, version: Version, size: int) -> None:
    """Have the run name the files, so that they are shown and stay as long as the run."""

    def attach(entry: Entry) -> None:
        run.records.add_artifact(f"{name}/{entry.path}", entry.digest, entry.size or 0)

    in_threads(attach, (entry for entry in manifest.entries.values() if entry.ref is None))
    run.records.add_artifact(f"{name}.json", version.manifest, size)


def _copy_reference(entry: Entry, target: Path, *, allow_missing: bool) -> str:
    address = urlsplit(str(entry.ref))
    source = Path(url2pathname(address.path))
    if address.scheme == "file" and source.is_file():
        if source.stat().st_size != entry.size:
            raise ValueError(f"reference {entry.ref} has changed since it was logged: it has another size")
        with _written_whole(target) as path:
            shutil.copyfile(source, path)
        return str(target)
    message = f"reference {entry.ref} is not on this machine, and is not downloaded"
    if not allow_missing:
        raise ValueError(f"{message}: read it yourself, or pass allow_missing_references=True")
    termwarn(message)
    return str(target)


@contextlib.contextmanager
def _written_whole(target: Path) -> Iterator[Path]:
    """A file beside the target that becomes it at the end of the ``with`` block."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".halving-", delete=False) as place:
        path = Path(place.name)
    try:
        yield path
        path.chmod(0o644)
        path.replace(target)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
