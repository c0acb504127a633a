"""DVC tracking of snapshots: a DVC project in the store's ``datasets`` folder, pushed to a remote.

The remote is ``HALVING_DVC_REMOTE``, or the folder ``dvc-remote`` beside the datasets. A lost snapshot comes back with
``dvc pull`` in the datasets folder.
"""

import os
import time
from pathlib import Path

_LOCK_TRIES = 20


def track(project: Path, folder: Path) -> None:
    """``dvc add`` and ``dvc push`` of one snapshot's folder; nothing to do when DVC has it already."""
    if folder.with_name(folder.name + ".dvc").exists():
        return
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    from dvc.lock import LockError
    from dvc.repo import Repo

    for attempt in range(_LOCK_TRIES):
        try:
            if not (project / ".dvc").is_dir():
                _create_project(project)
            with Repo(str(project)) as repo:
                added = repo.add(str(folder))
                repo.push(targets=[stage.addressing for stage in added])
            return
        except LockError:
            # Another sweep is snapshotting at this moment.
            if attempt == _LOCK_TRIES - 1:
                raise
            time.sleep(0.5)


def _create_project(project: Path) -> None:
    from dvc.repo import Repo

    remote = os.environ.get("HALVING_DVC_REMOTE") or str(project.parent / "dvc-remote")
    with Repo.init(str(project), no_scm=True) as repo, repo.config.edit() as config:
        config["core"]["analytics"] = False
        config["core"]["remote"] = "halving"
        config["remote"]["halving"] = {"url": remote}
        # Hard links: the cache costs no second copy, and the snapshot's files become read-only.
        config["cache"]["type"] = ["hardlink", "copy"]
