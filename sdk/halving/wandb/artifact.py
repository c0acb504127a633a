"""``wandb.Artifact``: a version of files under a name."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halving.store.store import digest_of
from halving.wandb.artifact_checks import checked_aliases, checked_metadata
from halving.wandb.artifact_draft import Draft
from halving.wandb.artifact_entries import Entry, Manifest, files_below
from halving.wandb.artifact_store import StoredArtifact
from halving.wandb.artifact_values import run_of, value_of
from halving.wandb.artifact_versions import check_artifact
from halving.wandb.errors import NotSupported


class Artifact(Draft):
    """Files under a name, to be logged as its next version, or a version that was logged.

    Args:
        name: letters, digits and ``. _ -``.
        type: such as ``model`` or ``dataset``; all versions of a name have the same.
        metadata: what JSON holds.

    Raises:
        ValueError: the name is not accepted.
    """

    def __init__(
        self,
        name: str,
        type: str,
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        incremental: bool = False,
        use_as: str | None = None,
        storage_region: str | None = None,
    ) -> None:
        check_artifact(name)
        if incremental:
            raise NotSupported(
                "wandb.Artifact(incremental=True) is not there in Halving: add all files; equal ones are "
                "stored once"
            )
        super().__init__(name)
        self._type = type
        self._description = description
        self._metadata = checked_metadata(metadata)
        self.use_as = use_as
        self.incremental = False
        self._stored: StoredArtifact | None = None
        self._disabled = False

    def __repr__(self) -> str:
        return f"<Artifact {self.name}>"

    # What it is

    @property
    def name(self) -> str:
        """``NAME``, and ``NAME:v3`` when it is logged."""
        if self._stored is None and not self._disabled:
            return self._name
        return f"{self._name}:{self.version}"

    @property
    def version(self) -> str:
        """``v0``, ``v1`` …"""
        if self._disabled:
            return "v0"
        return f"v{self._logged('version').version.number}"

    @property
    def type(self) -> str:
        return self._type

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    @property
    def digest(self) -> str:
        """Of its paths and contents."""
        return self._manifest.digest()

    @property
    def size(self) -> int:
        """The bytes of its files."""
        return self._manifest.size()

    @property
    def file_count(self) -> int:
        return len(self._manifest)

    @property
    def id(self) -> str | None:
        """Names the version in the store; None before it is logged."""
        if self._stored is None:
            return None
        return f"{self._stored.collection.project}/{self.name}"

    @property
    def qualified_name(self) -> str:
        return self.id or self.name

    @property
    def project(self) -> str:
        return self._logged("project").collection.project

    @property
    def entity(self) -> str:
        """Empty: projects belong to no entity here."""
        return ""

    @property
    def source_name(self) -> str:
        return self.name

    @property
    def source_version(self) -> str:
        return self.version

    @property
    def source_project(self) -> str:
        return self.project

    @property
    def created_at(self) -> str:
        return self._logged("created_at").version.created

    @property
    def state(self) -> str:
        """``PENDING`` before it is logged, then ``COMMITTED``."""
        return "PENDING" if self.is_draft() else "COMMITTED"

    def is_draft(self) -> bool:
        """Whether it is still to be logged."""
        return self._stored is None and not self._disabled

    @property
    def description(self) -> str | None:
        return self._description

    @description.setter
    def description(self, description: str | None) -> None:
        self._description = description

    @property
    def metadata(self) -> dict[str, Any]:
        return self._metadata

    @metadata.setter
    def metadata(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = checked_metadata(metadata)

    @property
    def aliases(self) -> list[str]:
        """The aliases that name this version; changes count after :meth:`save`."""
        return self._logged("aliases").aliases

    @aliases.setter
    def aliases(self, aliases: list[str]) -> None:
        self._logged("aliases").aliases = checked_aliases(aliases)

    @property
    def tags(self) -> list[str]:
        return []

    def logged_by(self) -> Any:
        """The run that logged this version, as ``wandb.Api`` has runs."""
        stored = self._logged("logged_by")
        return run_of(stored.collection.project, stored.version.run)

    def used_by(self) -> list[Any]:
        """The runs that used this version, as ``wandb.Api`` has runs."""
        stored = self._logged("used_by")
        users = stored.collection.users(stored.version.number)
        return [run_of(stored.collection.project, run) for run in users]

    # Logging, and changing what was logged

    def wait(self, timeout: int | None = None) -> "Artifact":
        """Return itself: a version is in the store when ``log_artifact`` has returned."""
        if self.is_draft():
            raise ValueError(
                f"artifact {self._name!r} is not logged yet: call run.log_artifact(artifact) first"
            )
        return self

    def save(self, project: str | None = None, settings: Any = None) -> None:
        """Write changes of aliases, metadata and description; log it with the current run if it is new."""
        if self._disabled:
            return
        if self._stored is None:
            from halving.wandb.current import current_run

            run = current_run()
            if run is None:
                raise ValueError("an artifact is saved by a run here: call wandb.init() first")
            run.log_artifact(self)
            return
        self._stored.write_changes(self._metadata, self._description)

    def link(self, target_path: str, aliases: Any = None) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(
            "artifact.link() is not there in Halving: models are promoted through gates by `halving models`; "
            "give the artifact an alias"
        )

    def delete(self, delete_aliases: bool = False) -> None:
        """Refuse.

        Raises:
            NotSupported: always.
        """
        raise NotSupported(
            "artifact.delete() is not there in Halving: an artifact stays as long as its run, "
            "`halving runs delete RUN`"
        )

    # Reading

    def get_entry(self, name: str | Path) -> Entry:
        """The entry of a path.

        Raises:
            KeyError: there is none.
        """
        entry = self._manifest.entries.get(str(name))
        if entry is None:
            raise KeyError(f"Path not contained in artifact: {name}")
        return entry

    get_path = get_entry

    def get(self, name: str) -> Any:
        """A data type that was added: a table, or an image; None if there is none of this name."""
        for path, entry in self._manifest.entries.items():
            kind = path.removeprefix(f"{name}.").split(".")[0]
            if path == name or path.startswith(f"{name}."):
                return value_of(entry, kind)
        return None

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def files(self, names: list[str] | None = None, per_page: int = 50) -> list[Entry]:
        """The entries; only those of ``names`` if it is given."""
        return [entry for path, entry in self._manifest.entries.items() if names is None or path in names]

    def file(self, root: str | None = None) -> str:
        """Download the only file, and return its path.

        Raises:
            ValueError: there are several.
        """
        entries = list(self._manifest.entries.values())
        if len(entries) != 1:
            raise ValueError(
                "This artifact contains more than one file, call `.download()` to get all files or call "
                '.get_entry("filename").download()'
            )
        return self._download_entry(entries[0], root)

    def download(
        self,
        root: str | Path | None = None,
        allow_missing_references: bool = False,
        skip_cache: bool | None = None,
        path_prefix: str | Path | None = None,
        multipart: bool | None = None,
    ) -> str:
        """Copy all files, or those below ``path_prefix``, into a folder, and return it.

        The folder is ``artifacts/NAME:vN`` by default, or that in ``WANDB_ARTIFACT_DIR``. Files that are
        there already with their content stay. References to files of this machine are copied; others can not
        be, and are an error unless ``allow_missing_references``.
        """
        folder = self._root(root)
        folder.mkdir(parents=True, exist_ok=True)
        if self._disabled:
            return str(folder)
        stored = self._logged("download")
        for path, entry in self._manifest.entries.items():
            if path_prefix is None or path.startswith(str(path_prefix)):
                stored.copy(entry, folder, allow_missing=allow_missing_references)
        return str(folder)

    def checkout(self, root: str | None = None) -> str:
        """Download, and delete what is in the folder beside the artifact's files."""
        folder = Path(self.download(root))
        for inner, path in list(files_below(folder)):
            if inner not in self._manifest.entries:
                path.unlink()
        return str(folder)

    def verify(self, root: str | None = None) -> None:
        """Check that a folder has the artifact's files and no others.

        Raises:
            ValueError: it has not.
        """
        folder = self._root(root)
        for inner, _ in files_below(folder):
            if inner not in self._manifest.entries:
                raise ValueError(f"Found file {folder / inner} which is not a member of artifact {self.name}")
        for path, entry in self._manifest.entries.items():
            if entry.ref is None and (
                not (folder / path).is_file() or digest_of(folder / path) != entry.digest
            ):
                raise ValueError(f"Digest mismatch for file: {folder / path}")

    def _download_entry(self, entry: Entry, root: str | Path | None) -> str:
        return self._logged("download").copy(entry, self._root(root), allow_missing=False)

    def _root(self, root: str | Path | None) -> Path:
        if root is not None:
            return Path(root)
        return Path(os.environ.get("WANDB_ARTIFACT_DIR") or "artifacts") / self.name

    def _logged(self, what: str) -> StoredArtifact:
        if self._stored is None:
            raise ValueError(f"{what} is not there before artifact {self._name!r} is logged: log it first")
        return self._stored

    @classmethod
    def _of(cls, stored: StoredArtifact) -> "Artifact":
        """The artifact of a version that was logged."""
        manifest, facts = stored.read()
        artifact = cls(stored.collection.name, stored.version.type, facts["description"], facts["metadata"])
        artifact._use(stored, manifest)
        return artifact

    def _use(self, stored: StoredArtifact, manifest: Manifest) -> None:
        self._stored = stored
        self._manifest = manifest
        for entry in manifest.entries.values():
            entry.artifact = self
