"""Where a run comes from: code, environment and machine, complete when the run starts."""

import hashlib
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from halving.records.hardware import usable_cpus, usable_memory
from halving.records.redaction import holds_secrets, redacted_patch, without_password, without_secrets
from halving.store.store import Store

LOCKFILES = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "constraints.txt", "requirements.txt")
IMAGE_VARIABLES = ("HALVING_IMAGE_DIGEST", "CONTAINER_IMAGE_DIGEST", "DAGSTER_CURRENT_IMAGE")
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
_UNTRACKED_LIMIT = 10 * 2**20  # bytes of one untracked file that still enters the patch
_SECONDS = 60.0  # that git may take
_TRIES = 5  # one in 25 fails where a file comes and goes without a pause
_TEMPORARY_HOME = "/.tmp_dagster_home_"  # Dagster's databases, where no DAGSTER_HOME is set: in the working directory, for one command
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for a tree with nothing in it


def capture(store: Store, folder: Path | None = None) -> dict[str, Any]:
    """Describe this process and the code in ``folder`` (default: the working directory).

    The dirty patch goes to ``store`` as a blob; the record holds its digest. The same for any number of
    runs of one process, so a caller with many runs captures once.
    """
    folder = folder or Path.cwd()
    return {
        "git": git_state(store, folder),
        "lockfile": _lockfile(folder),
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "packages": _packages(),
        "image": next((os.environ[name] for name in IMAGE_VARIABLES if os.environ.get(name)), None),
        "hardware": _hardware(),
        "command": without_secrets([sys.executable, *sys.argv], os.environ),
    }


def git_state(store: Store, folder: Path) -> dict[str, Any] | None:
    """Commit, branch, remote and dirty patch of the checkout around ``folder``; None outside of git.

    The patch is binary-safe and holds untracked files too (but for those over 10 MiB, nested repositories and files that are made to
    hold secrets, like ``.env``, which are listed), so ``git checkout COMMIT && git apply PATCH`` gives the very code that ran; but for
    ``patch_redacted``, the number of its lines in which a secret was hidden (see :func:`halving.records.redaction.redacted_patch`).
    ``dirty`` is None where git could not say, and ``error`` then holds its words.
    """
    top = _git_or_none(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    checkout = Path(top.decode().strip())
    commit = _git_or_none(checkout, "rev-parse", "--verify", "HEAD")
    patch, left_out, error = _dirty_patch(checkout, store, "HEAD" if commit else _EMPTY_TREE)
    shown, redacted = redacted_patch(patch or b"", os.environ)
    remote = _git_or_none(checkout, "remote", "get-url", "origin")
    branch = _git_or_none(checkout, "symbolic-ref", "--short", "-q", "HEAD")
    return {
        "commit": commit.decode().strip() if commit else None,
        "branch": branch.decode().strip() if branch else None,
        "remote": without_password(remote.decode().strip()) if remote else None,
        "dirty": None if patch is None else bool(patch),
        "error": error,
        "patch": store.put_blob(shown) if shown else None,
        "patch_redacted": redacted,
        "untracked_left_out": left_out,
    }


def _dirty_patch(checkout: Path, store: Store, base: str) -> tuple[bytes | None, list[str], str | None]:
    """The patch against ``base`` and the untracked files that it leaves out; or no patch, and why git could make none.

    Files come and go while git reads them (an editor's, a database's), and git gives up at one that has gone since it listed them:
    it is asked again, for as long as a run may wait for it. One that hangs is not.
    """
    error, until = "", time.monotonic() + _SECONDS
    for _ in range(_TRIES):
        try:
            return *_patch_now(checkout, store, base), None
        except subprocess.CalledProcessError as refused:
            said = [line for line in refused.stderr.decode(errors="replace").splitlines() if line.startswith(("error: ", "fatal: "))]
            error = f"git {refused.cmd[3]}: {'; '.join(said[-3:]) or f'exit status {refused.returncode}'}"
        except (OSError, subprocess.TimeoutExpired) as failed:
            error = str(failed)
            break
        if time.monotonic() > until:
            break
    return None, [], without_secrets([error], os.environ)[0]


def _patch_now(checkout: Path, store: Store, base: str) -> tuple[bytes, list[str]]:
    """The patch, and what it leaves out; what this run and its tools write meanwhile, the store and Dagster's home, is part of neither."""
    listed = _git(checkout, "ls-files", "--others", "--exclude-standard", "-z")
    untracked = [name for name in listed.decode(errors="surrogateescape").split("\0") if name and _TEMPORARY_HOME not in f"/{name}"]
    # A name with a slash at its end is a repository inside this one: git would note its commit at most, or refuse it.
    left_out = [name for name in untracked if name.endswith("/") or holds_secrets(name) or _is_large(checkout / name)]
    git_folder = Path(_git(checkout, "rev-parse", "--absolute-git-dir").decode().strip())
    objects = Path(_git(checkout, "rev-parse", "--git-path", "objects").decode().strip())
    # A scratch index and object folder: the user's own index and repository stay as they are.
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(checkout / objects),
        }
        if (git_folder / "index").exists():
            # With its time: git looks into files that are not older than the index, whatever their size and time say.
            shutil.copy2(git_folder / "index", f"{scratch}/index")
        exclusions = [f":(exclude,glob)**{_TEMPORARY_HOME}*/**", *(f":(exclude,literal){name}" for name in left_out)]
        if store.folder is not None and store.folder.resolve().is_relative_to(checkout):
            inside = store.folder.resolve().relative_to(checkout).as_posix()
            left_out = [name for name in left_out if not name.startswith(f"{inside}/")]
            if _git_or_none(checkout, "check-ignore", "--quiet", inside) is None:  # git add refuses to exclude what is ignored anyway
                exclusions.append(f":(exclude,literal){inside}")
        _git(checkout, "add", "--all", "--", ".", *exclusions, environment=environment)
        # diff-index, not diff: no setting of the user's (diff.noprefix, diff.context, textconv) may change the patch.
        patch = _git(checkout, "diff-index", "--cached", "--patch", "--binary", "--no-ext-diff", base, environment=environment)
    return patch, left_out


def _is_large(path: Path) -> bool:
    try:
        return path.is_file() and path.stat().st_size > _UNTRACKED_LIMIT
    except OSError:  # it has just gone
        return False


def _git(folder: Path, *arguments: str, environment: dict[str, str] | None = None) -> bytes:
    """What git prints.

    Raises:
        OSError: it is missing.
        subprocess.TimeoutExpired: it hangs.
        subprocess.CalledProcessError: it refuses.
    """
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        check=True,
        timeout=_SECONDS,
        env={**os.environ, **(environment or {}), "GIT_OPTIONAL_LOCKS": "0"},
    ).stdout


def _git_or_none(folder: Path, *arguments: str) -> bytes | None:
    """What git prints; None where it is missing, hangs or refuses: a run starts with or without git."""
    try:
        return _git(folder, *arguments)
    except (OSError, subprocess.SubprocessError):
        return None


def _lockfile(folder: Path) -> dict[str, str] | None:
    for parent in (folder, *folder.parents):
        for name in LOCKFILES:
            if (parent / name).is_file():
                return {"name": name, "sha256": hashlib.sha256((parent / name).read_bytes()).hexdigest()}
        if (parent / ".git").exists():
            return None
    return None


def _packages() -> dict[str, str]:
    from importlib.metadata import distributions

    found = {dist.metadata["Name"]: dist.version for dist in distributions() if dist.metadata["Name"]}
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def _hardware() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": usable_cpus(),
        "memory_bytes": usable_memory(),
        "gpus": _gpus(),
        # Which of them this process may use, as it was told: by a worker's slot, or by the cluster.
        "visible_gpus": {name: os.environ[name] for name in GPU_VARIABLES if name in os.environ},
    }


def _gpus() -> list[str]:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,uuid,driver_version", "--format=csv,noheader"],
            capture_output=True,
            check=False,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode().strip().splitlines() if done.returncode == 0 else []
