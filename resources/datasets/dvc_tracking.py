"""Track snapshots with DVC: a DVC project in the store's ``datasets`` folder, pushed to a remote.

The remote is ``HALVING_DVC_REMOTE``, or the folder ``dvc-remote`` beside the datasets. ``dvc pull`` in the
datasets folder restores a lost manifest. DVC has only the manifests; shards are copied to a remote that was
named, and ``halving datasets fetch`` restores them.
"""

import fcntl
import logging
import os
import sys
from importlib import import_module
from pathlib import Path

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_random

from halving.errors import StoreError

_log = logging.getLogger(__name__)

_REMOTE = "halving"
# How long to wait for DVC's lock, which other sweeps hold while they take snapshots, perhaps with a slow
# remote or on a busy machine. The lock is the kernel's, so a killed process holds it no longer.
_LOCK_SECONDS = 600.0


def track(project: Path, folder: Path) -> None:
    """Run ``dvc add`` and ``dvc push`` on a snapshot's folder; files that the remote has are not sent again.

    Raises:
        StoreError: DVC refused, or its remote cannot be reached; calling again continues where this stopped.
    """
    _import_dvc()
    from dvc.exceptions import DvcException
    from dvc.lock import LockError

    retrying = Retrying(
        retry=retry_if_exception_type(LockError),
        wait=wait_random(0.25, 0.75),
        stop=stop_after_delay(_LOCK_SECONDS),
        before_sleep=lambda state: _say_that_it_waits(project, state),
        reraise=True,
    )
    try:
        retrying(_add_and_push, project, folder)
    except LockError as error:
        raise StoreError(f"DVC's project {project} stays locked: {error}") from error
    except (DvcException, OSError) as error:
        raise StoreError(
            f"DVC could not track {folder}: {error}; check its remote ({remote_of(project)})"
        ) from error


def _say_that_it_waits(project: Path, state: RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        _log.warning(
            "DVC's project %s is locked; waiting up to %.0f s for it: %s",
            project,
            _LOCK_SECONDS,
            state.outcome.exception(),
        )


def remote_of(project: Path) -> str:
    """The remote to which the project's snapshots are pushed."""
    return os.environ.get("HALVING_DVC_REMOTE") or str(project.parent / "dvc-remote")


def _import_dvc() -> None:
    """Import DVC, and undo what its import changes in the whole process.

    It wraps the standard streams (colorama), and gives its loggers handlers that hold the current streams.
    Where those are replaced and closed later, as by whoever captures output, DVC's next warning would raise
    "I/O operation on closed file".
    """
    if "dvc" in sys.modules:
        return
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    streams = sys.stdout, sys.stderr
    import_module("dvc")

    sys.stdout, sys.stderr = streams
    for name in ("dvc", "dvc_objects", "dvc_data"):
        # Their records go to the root logger's handlers, or to the standard error of that time.
        logging.getLogger(name).handlers.clear()


def _add_and_push(project: Path, folder: Path) -> None:
    from dvc.repo import Repo

    # DVC is an implementation detail here, so its progress messages would only confuse.
    logging.getLogger("dvc").setLevel(logging.WARNING)
    with (project / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # DVC has no lock of its own before there is a project.
        if not (project / ".dvc").is_dir():
            Repo.init(str(project), no_scm=True).close()
        repo = Repo(str(project))
        if _configure(repo, remote_of(project)):
            repo.close()
            # Opening a project takes long, so it is opened again only after a change of its configuration.
            repo = Repo(str(project))
    with repo:
        tracked = Path(f"{folder}.dvc")
        if not tracked.exists():
            repo.add(str(folder))
        repo.push(targets=[str(tracked)])


def _configure(repo: object, remote: str) -> bool:
    """Set the remote and the cache of a DVC project; return whether anything had to be changed."""
    config = repo.config  # type: ignore[attr-defined]
    if config["remote"].get(_REMOTE, {}).get("url") == remote:
        return False
    with config.edit() as edited:
        edited["core"]["analytics"] = False
        edited["core"]["remote"] = _REMOTE
        edited["remote"][_REMOTE] = {"url": remote}
        # Hard links: the cache costs no second copy, and the snapshot's files become read-only.
        edited["cache"]["type"] = ["hardlink", "copy"]
    return True
