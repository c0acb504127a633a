"""W&B's artifacts: runs log versions of files by name, and other runs use them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from halving.errors import NotFound
from halving.identifiers import sanitize_name
from halving.store.store import Store
from halving.wandb.artifact import Artifact as Artifact
from halving.wandb.artifact_checks import checked_aliases
from halving.wandb.artifact_store import StoredArtifact
from halving.wandb.artifact_versions import LATEST, Collection
from halving.wandb.errors import CommError
from halving.wandb.saved_files import save_files as save_files

if TYPE_CHECKING:
    from halving.wandb.run import Run


def log_artifact(
    run: "Run",
    artifact_or_path: Any,
    name: str | None = None,
    type: str | None = None,
    aliases: Any = None,
    tags: Any = None,
) -> Artifact:
    """Log an artifact as the next version of its name; one with equal content is the version that it was.

    Args:
        artifact_or_path: a path is an artifact with this file or folder, an address one with a reference.
        name: of a path's; default: ``run-ID-FILENAME``.
        aliases: beside ``latest``, which always names the newest version.

    Raises:
        ValueError: a name, type or alias is not accepted.
        StoreError: the store refuses, or was unavailable for ten minutes.
    """
    artifact = artifact_or_path
    if not isinstance(artifact, Artifact):
        artifact = _artifact_of(run, str(artifact_or_path), name, type)
    names = checked_aliases(aliases)
    if run._run is None or not run._run._ranks.leads:
        artifact._disabled = True
        return artifact
    if artifact._stored is None:
        stored = StoredArtifact.log(
            run._run,
            artifact._name,
            artifact._type,
            artifact.manifest,
            artifact._metadata,
            artifact._description,
        )
        artifact._use(stored, artifact.manifest)
    artifact._logged("aliases").add_aliases(names)
    return artifact


def use_artifact(run: "Run", artifact_or_name: Any, type: str | None = None, aliases: Any = None) -> Artifact:
    """A version that was logged, whose use is recorded.

    Args:
        artifact_or_name: ``NAME:v3``, ``NAME:ALIAS``, ``NAME`` (its latest), or ``PROJECT/NAME:…``; or an
            artifact, which is logged first if it is new.

    Raises:
        CommError: there is no such artifact.
        ValueError: it is of another type.
    """
    if isinstance(artifact_or_name, Artifact):
        artifact = artifact_or_name
        if artifact.is_draft():
            artifact = log_artifact(run, artifact)
    elif run._run is None:
        artifact = Artifact(str(artifact_or_name).rpartition("/")[2].partition(":")[0], type or "unspecified")
        artifact._disabled = True
    else:
        artifact = find_artifact(run._run.store, run.project, str(artifact_or_name), type)
    if run._run is not None and artifact._stored is not None:
        artifact._stored.note_use(run._run)
        artifact._stored.add_aliases(checked_aliases(aliases))
    return artifact


def find_artifact(store: Store, project: str, name: str, type: str | None = None) -> Artifact:
    """A version that was logged, by its name; see :func:`use_artifact`.

    Raises:
        CommError: there is no such artifact, or its run was deleted.
        ValueError: it is of another type.
    """
    path, _, reference = name.removeprefix("wandb-artifact://").partition(":")
    parts = path.split("/")
    if len(parts) > 1:
        project = sanitize_name(parts[-2], otherwise=project)
    collection = Collection(store, project, parts[-1])
    version = collection.find(reference or LATEST)
    if version is None:
        raise CommError(f"artifact {name!r} not found in project {project!r} of {store.root}")
    if type is not None and version.type != type:
        raise ValueError(f"Supplied type {type} does not match type {version.type} of artifact {name!r}")
    try:
        return Artifact._of(StoredArtifact(collection, version))
    except NotFound as error:
        raise CommError(str(error), error) from error


def _artifact_of(run: "Run", path: str, name: str | None, type: str | None) -> Artifact:
    base = Path(path).name
    artifact = Artifact(name or f"run-{run.id}-{base}", type or "unspecified")
    if "://" in path:
        artifact.add_reference(path)
    elif Path(path).is_dir():
        artifact.add_dir(path, policy="immutable")
    elif Path(path).is_file():
        artifact.add_file(path, policy="immutable")
    else:
        raise ValueError(f"path {path!r} is not accepted: give an existing file or folder, or an address")
    return artifact
