"""Where a run comes from: code, environment and machine, complete when the run starts."""

import hashlib
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from halving.records.hardware import usable_cpus, usable_memory
from halving.records.redaction import holds_secrets, redacted_patch, without_password, without_secrets
from halving.store.store import Store

LOCKFILES = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "constraints.txt", "requirements.txt")
IMAGE_VARIABLES = ("HALVING_IMAGE_DIGEST", "CONTAINER_IMAGE_DIGEST", "DAGSTER_CURRENT_IMAGE")
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
NOT_CAPTURED: dict[str, Any] = {
    "git": None,
    "lockfile": None,
    "python": {},
    "packages": {},
    "image": None,
    "hardware": {},
    "command": [],
}
"""What :func:`capture` gives, of a run whose process did not say."""

_UNTRACKED_LIMIT = 10 * 2**20  # bytes of untracked files in the patch
_CHANGED_LIMIT = 32 * 2**20  # bytes of changed files in the patch, before and after
_LISTED = 100  # files that are left out
_SECONDS = 60.0  # that git may take
_TRIES = 5  # one in 25 fails where a file comes and goes all the time
_TEMPORARY_HOME = "/.tmp_dagster_home_"  # Dagster's databases, where no DAGSTER_HOME is set: in the working directory, for one command
_NAME, _VERSION = re.compile(r"^Name: *(.*\S)", re.M), re.compile(r"^Version: *(.*\S)", re.M)  # the first are those of the header
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for a tree with nothing in it


def capture(store: Store, folder: Path | None = None) -> dict[str, Any]:
    """Describe this process and the code in ``folder`` (default: the working directory).

    The dirty patch goes to ``store`` as a blob; the record holds its digest. All runs of one process
    have the same provenance, so a caller with many runs captures once.
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

    The patch is binary-safe and holds untracked files, too, so that ``git checkout COMMIT && git apply PATCH`` gives the very code that
    ran; except for ``patch_redacted`` lines, in which a secret was hidden (:func:`halving.records.redaction.redacted_patch`), and for
    ``left_out_count`` files: nested repositories, files that are made to hold secrets, like ``.env``, and the largest ones where changed
    files come to more than 32 MiB (before and after together), or untracked ones to more than 10 MiB. ``left_out`` has ``path`` and
    ``bytes`` of the 100 largest. ``dirty`` is None where git could not say, and ``error`` then holds its words.
    """
    top = _line_of(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    checkout = Path(top)
    commit = _line_of(checkout, "rev-parse", "--verify", "HEAD")
    patch = _dirty_patch(checkout, store, "HEAD" if commit else _EMPTY_TREE)
    shown, redacted = redacted_patch(patch.text, os.environ)
    remote = _line_of(checkout, "remote", "get-url", "origin")
    largest = sorted(patch.left_out, key=lambda name: -patch.left_out[name])[:_LISTED]
    return {
        "commit": commit,
        "branch": _line_of(checkout, "symbolic-ref", "--short", "-q", "HEAD"),
        "remote": without_password(remote) if remote else None,
        "dirty": patch.dirty,
        "error": patch.error,
        "patch": store.put_blob(shown) if shown else None,
        "patch_redacted": redacted,
        "left_out": [{"path": name, "bytes": patch.left_out[name]} for name in sorted(largest)],
        "left_out_count": len(patch.left_out),
    }


class _Patch(NamedTuple):
    """What differs from a commit: as git prints it, and the files that are not in it with their bytes; or why git could not say."""

    text: bytes
    dirty: bool | None
    left_out: dict[str, int]
    error: str | None = None


def _dirty_patch(checkout: Path, store: Store, base: str) -> _Patch:
    """The patch against ``base``.

    Files come and go while git reads them (an editor's, a database's), and git gives up at one that has gone since it was listed.
    Then it is tried again, for as long as a run may wait for it; but not when git hangs.
    """
    error, until = "", time.monotonic() + _SECONDS
    for _ in range(_TRIES):
        try:
            return _patch_now(checkout, store, base)
        except subprocess.CalledProcessError as refused:
            said = [line for line in refused.stderr.decode(errors="replace").splitlines() if line.startswith(("error: ", "fatal: "))]
            error = f"git {refused.cmd[3]}: {'; '.join(said[-3:]) or f'exit status {refused.returncode}'}"
        except (OSError, subprocess.TimeoutExpired) as failed:
            error = str(failed)
            break
        if time.monotonic() > until:
            break
    return _Patch(b"", None, {}, without_secrets([error], os.environ)[0])


def _patch_now(checkout: Path, store: Store, base: str) -> _Patch:
    """The patch without what this run and its tools write meanwhile: the store and Dagster's home."""
    store_inside = None
    if store.folder is not None and store.folder.resolve().is_relative_to(checkout):
        store_inside = f"{store.folder.resolve().relative_to(checkout).as_posix()}/"

    def is_ours(name: str) -> bool:
        return _TEMPORARY_HOME in f"/{name}" or (store_inside is not None and name.startswith(store_inside))

    git_folder = Path(_git(checkout, "rev-parse", "--absolute-git-dir").decode().strip())
    objects = Path(_git(checkout, "rev-parse", "--git-path", "objects").decode().strip())
    # Scratch indexes and a scratch object folder: the user's own index and repository stay as they are.
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(checkout / objects),
        }
        if (git_folder / "index").exists():
            # With its time: git looks into files that are not older than the index, whatever their size and time say.
            shutil.copy2(git_folder / "index", f"{scratch}/index")
        _git(checkout, "update-index", "-q", "--unmerged", "--refresh", environment=environment)
        changed = {name: size for name, size in _changed(checkout, base, environment).items() if not is_ours(name)}
        listed = _names(_git(checkout, "ls-files", "--others", "--exclude-standard", "-z", environment=environment))
        untracked = {name: _bytes_of(checkout / name) for name in listed if not is_ours(name)}
        # A name with a slash at its end is a repository inside this one: git would note its commit at most, or refuse it.
        accepted = {name: size for name, size in untracked.items() if not name.endswith("/") and not holds_secrets(name)}
        taken = _smallest(changed, _CHANGED_LIMIT) | _smallest(accepted, _UNTRACKED_LIMIT)
        environment["GIT_INDEX_FILE"] = f"{scratch}/patched"
        _git(checkout, "read-tree", base, environment=environment)
        names = b"".join(os.fsencode(name) + b"\0" for name in sorted(taken))
        _git(checkout, "update-index", "--add", "--remove", "--replace", "-z", "--stdin", environment=environment, given=names)
        # diff-index, not diff: no setting of the user's (diff.noprefix, diff.context, textconv) may change the patch.
        text = _git(checkout, "diff-index", "--cached", "--patch", "--binary", "--no-ext-diff", base, environment=environment)
    left_out = {name: size for name, size in (changed | untracked).items() if name not in taken}
    return _Patch(text, bool(text or changed.keys() - taken), left_out)


def _changed(checkout: Path, base: str, environment: dict[str, str]) -> dict[str, int]:
    """The tracked files that differ from ``base``, with their bytes before and after together."""
    fields = _names(_git(checkout, "diff-index", "--raw", "--no-abbrev", "--ignore-submodules=dirty", "-z", base, environment=environment))
    before = {name: entry.split()[2] for entry, name in zip(fields[::2], fields[1::2], strict=True)}
    asked = "".join(f"{blob}\n" for blob in before.values()).encode()
    sizes = _git(checkout, "cat-file", "--batch-check=%(objectsize)", given=asked).decode().splitlines() if asked else []
    return {name: _bytes_of(checkout / name) + (int(size) if size.isdigit() else 0) for name, size in zip(before, sizes, strict=True)}


def _smallest(sizes: Mapping[str, int], limit: int) -> set[str]:
    """As many of the files as come to ``limit`` bytes at most, the smallest first."""
    taken, total = set(), 0
    for size, name in sorted((size, name) for name, size in sizes.items()):
        total += size
        if total > limit:
            break
        taken.add(name)
    return taken


def _bytes_of(path: Path) -> int:
    try:
        return 0 if path.is_dir() else path.lstat().st_size
    except OSError:  # deleted
        return 0


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _git(folder: Path, *arguments: str, environment: dict[str, str] | None = None, given: bytes = b"") -> bytes:
    """What git prints.

    Raises:
        OSError: it is missing.
        subprocess.TimeoutExpired: it hangs.
        subprocess.CalledProcessError: it refuses.
    """
    command = ["git", "-C", str(folder), *arguments]
    variables = {**os.environ, **(environment or {}), "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(command, input=given, capture_output=True, check=True, timeout=_SECONDS, env=variables).stdout


def _line_of(folder: Path, *arguments: str) -> str | None:
    """The line that git prints; None where it is missing, hangs or refuses: a run starts with or without git."""
    try:
        return _git(folder, *arguments).decode().strip() or None
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
    """The versions of what is installed, by name; of a package that is there twice the one that is imported.

    Of its metadata two lines are looked for: to parse all of it, for hundreds of packages, took most of the time that a run needs to begin.
    """
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    for dist in distributions():
        about = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
        name, version = _NAME.search(about), _VERSION.search(about)
        if name and version:
            found.setdefault(name[1], version[1])
    return {name: found[name] for name in sorted(found, key=str.lower)}


def _hardware() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": usable_cpus(),
        "memory_bytes": usable_memory(),
        "gpus": _gpus(),
        # Which GPUs this process may use: its worker's slot or the cluster has set these.
        "visible_gpus": {name: os.environ[name] for name in GPU_VARIABLES if name in os.environ},
    }


def _gpus() -> list[str]:
    asked = ["nvidia-smi", "--query-gpu=name,uuid,driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(asked, capture_output=True, check=True, timeout=10).stdout.decode().strip().splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
