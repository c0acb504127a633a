"""DVC tracking of snapshots: a DVC project in the store's ``datasets`` folder, pushed to a remote.

The remote is ``HALVING_DVC_REMOTE``, or the folder ``dvc-remote`` beside the datasets. A lost manifest comes
back with ``dvc pull`` in the datasets folder. DVC has the manifests alone: shards are copied to a remote that
was named, and ``halving datasets fetch`` brings them back.
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
# For which others may hold DVC's lock: sweeps that take their snapshots at the same moment, with a slow
# remote or on a busy machine. The lock is the kernel's, so a process that was killed holds it no longer.
_LOCK_SECONDS = 600.0


def track(project: Path, folder: Path) -> None:
    """``dvc add`` and ``dvc push`` of one snapshot's folder; files that the remote has are not sent again.

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
    """Where the project's snapshots are pushed."""
    return os.environ.get("HALVING_DVC_REMOTE") or str(project.parent / "dvc-remote")


def _import_dvc() -> None:
    """Import DVC, and take back what its import does to the whole process.

    It wraps the standard streams (colorama), and gives its loggers handlers that hold the streams of this
    moment: where those are replaced and closed later, as whoever captures output does, DVC's next warning
    raises "I/O operation on closed file".
    """
    if "dvc" in sys.modules:
        return
    os.environ.setdefault("DVC_NO_ANALYTICS", "1")
    streams = sys.stdout, sys.stderr
    import_module("dvc")

    sys.stdout, sys.stderr = streams
    for name in ("dvc", "dvc_objects", "dvc_data"):
        # what they say goes to the root's, or to the standard error of that time
        logging.getLogger(name).handlers.clear()


def _add_and_push(project: Path, folder: Path) -> None:
    from dvc.repo import Repo

    # what it does here is nothing that its user asked for by name
    logging.getLogger("dvc").setLevel(logging.WARNING)
    with (project / ".setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # before there is a project, DVC has no lock of its own
        if not (project / ".dvc").is_dir():
            Repo.init(str(project), no_scm=True).close()
        repo = Repo(str(project))
        if _configure(repo, remote_of(project)):
            repo.close()
            # to open one takes long, so only where it would not know what has changed
            repo = Repo(str(project))
    with repo:
        tracked = Path(f"{folder}.dvc")
        if not tracked.exists():
            repo.add(str(folder))
        repo.push(targets=[str(tracked)])


def _configure(repo: object, remote: str) -> bool:
    """Whether anything had to be changed."""
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
