"""DVC tracking of snapshots: a DVC project in the store's ``datasets`` folder, pushed to a remote.

The remote is ``HALVING_DVC_REMOTE``, or the folder ``dvc-remote`` beside the datasets. A lost manifest comes back with ``dvc pull`` in the
datasets folder. DVC has the manifests alone: shards are copied to a remote that was named, and ``halving datasets fetch`` brings them back.
"""

import fcntl
import logging
import os
from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random

from halving.errors import StoreError

_REMOTE = "halving"
_LOCK_SECONDS = 10.0  # for which another sweep may hold DVC's lock: it takes a snapshot at the same moment


def track(project: Path, folder: Path) -> None:
    """``dvc add`` and ``dvc push`` of one snapshot's folder; files that the remote has are not sent again.

    Raises:
        StoreError: DVC refused, or its remote cannot be reached; calling again continues where this stopped.
    """
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    from dvc.exceptions import DvcException
    from dvc.lock import LockError

    retrying = Retrying(
        retry=retry_if_exception_type(LockError), wait=wait_random(0.25, 0.75), stop=stop_after_delay(_LOCK_SECONDS), reraise=True
    )
    try:
        retrying(_add_and_push, project, folder)
    except LockError as error:
        raise StoreError(f"DVC's project {project} stays locked: {error}") from error
    except (DvcException, OSError) as error:
        raise StoreError(f"DVC could not track {folder}: {error}; check its remote ({remote_of(project)})") from error


def remote_of(project: Path) -> str:
    """Where the project's snapshots are pushed."""
    return os.environ.get("HALVING_DVC_REMOTE") or str(project.parent / "dvc-remote")


def _add_and_push(project: Path, folder: Path) -> None:
    from dvc.repo import Repo

    logging.getLogger("dvc").setLevel(logging.WARNING)  # what it does here is nothing that its user asked for by name
    with (project / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # before there is a project, DVC has no lock of its own
        if not (project / ".dvc").is_dir():
            Repo.init(str(project), no_scm=True).close()
        with Repo(str(project)) as repo:
            _configure(repo, remote_of(project))
    with Repo(str(project)) as repo:
        tracked = Path(f"{folder}.dvc")
        if not tracked.exists():
            repo.add(str(folder))
        repo.push(targets=[str(tracked)])


def _configure(repo: object, remote: str) -> None:
    config = repo.config  # type: ignore[attr-defined]
    if config["remote"].get(_REMOTE, {}).get("url") == remote:
        return
    with config.edit() as edited:
        edited["core"]["analytics"] = False
        edited["core"]["remote"] = _REMOTE
        edited["remote"][_REMOTE] = {"url": remote}
        # Hard links: the cache costs no second copy, and the snapshot's files become read-only.
        edited["cache"]["type"] = ["hardlink", "copy"]
