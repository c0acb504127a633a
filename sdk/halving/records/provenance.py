"""The provenance of a run: code, environment and machine, recorded when the run starts."""

import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlparse

from halving.records.command import started_in
from halving.records.hardware import usable_cpus, usable_memory
from halving.records.redaction import holds_secrets, redacted_patch, without_password, without_secrets
from halving.store.store import Store

LOCKFILES = ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "constraints.txt", "requirements.txt")
IMAGE_VARIABLES = ("HALVING_IMAGE_DIGEST", "CONTAINER_IMAGE_DIGEST", "DAGSTER_CURRENT_IMAGE")
GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
DIGEST = "sha256:"
"""The beginning of the digest of an image's manifest."""
CHECKOUT = "checkout:"
"""The mark before a path within the checkout, of a package's folder or of an argument."""
NOT_CAPTURED: dict[str, Any] = {
    "git": None,
    "lockfile": None,
    "python": {},
    "packages": {},
    "packages_from": {},
    "cuda": None,
    "image": None,
    "hardware": {},
    "command": [],
    "arguments": [],
}
"""A result of :func:`capture` for a run whose process recorded nothing."""

_UNTRACKED_LIMIT = 10 * 2**20  # bytes of untracked files in the patch
_CHANGED_LIMIT = 32 * 2**20  # bytes of changed files in the patch, before and after
_MAX_LEFT_OUT = 100  # files that are listed as left out
_SECONDS = 60.0  # that git may take
_TRIES = 5  # because one in 25 fails where a file comes and goes all the time
# Without DAGSTER_HOME, Dagster's databases are here in the working directory, for one command.
_TEMPORARY_HOME = "/.tmp_dagster_home_"
# The first match in a package's metadata is that of the header.
_NAME = re.compile(r"^Name: *(.*\S)", re.M)
_VERSION = re.compile(r"^Version: *(.*\S)", re.M)
_CUDA = re.compile(r"^cuda\b[^=]*= *['\"]([\d.]+)['\"]", re.M)
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name for a tree with nothing in it


def capture(store: Store, folder: Path | None = None) -> dict[str, Any]:
    """Describe this process and the code in ``folder`` (default: the working directory).

    The dirty patch goes to ``store`` as a blob; the record holds its digest. All runs of one process
    have the same provenance, so a caller with many runs captures once.
    """
    folder = folder or Path.cwd()
    facts = environment()
    checkout = _checkout_around(folder)
    arguments = sys.orig_argv[1:]
    git = None
    if checkout:
        git = _state_of(store, checkout, folder)
        facts["packages_from"] = _from_checkout(facts["packages_from"], checkout)
        arguments = _relative_to_checkout(arguments, checkout)
    return {
        "git": git,
        "lockfile": _lockfile(folder),
        **facts,
        "command": without_secrets([sys.executable, *sys.argv], os.environ),
        # A rerun starts the interpreter with these.
        "arguments": without_secrets(arguments, os.environ),
    }


def environment() -> dict[str, Any]:
    """The interpreter, the packages, the image and the machine of this process."""
    return {
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        **_packages(),
        "cuda": _cuda(),
        "image": image(),
        "hardware": _hardware(),
    }


def image(named: str | None = None) -> str | None:
    """The image that this process runs in, by its environment; None if that does not tell.

    Where a variable has only a digest, the result is the name with that digest.

    Args:
        named: the name of the image by which this process was started.
    """
    names = [name for name in (*map(os.environ.get, IMAGE_VARIABLES), named) if name]
    if not names:
        return None
    first = names[0]
    if first.startswith(DIGEST):
        for name in names:
            if not name.startswith(DIGEST):
                return f"{_without_tag(name)}@{first}"
    return first


def _without_tag(name: str) -> str:
    """``registry:5000/train`` for ``registry:5000/train:3`` or ``registry:5000/train@sha256:…``."""
    path, slash, last = name.partition("@")[0].rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def git_state(store: Store, folder: Path) -> dict[str, Any] | None:
    """Commit, branch, remote and dirty patch of the checkout around ``folder``; None outside of git.

    The entry ``folder`` is the folder of the checkout in which the script was started (else the argument),
    and ``import_paths`` are the folders of the checkout from which Python imports; a rerun needs both.

    The patch is binary-safe and has untracked files, too, so that ``git checkout COMMIT && git apply PATCH``
    restores the code that ran, except for ``patch_redacted`` lines, in which a secret was hidden
    (:func:`halving.records.redaction.redacted_patch`), and for ``left_out_count`` files. Left out are nested
    repositories and changes within submodules (``lib/``), files that are made to hold secrets, like ``.env``,
    and the largest files where changed ones come to more than 32 MiB (before and after together), or
    untracked ones to more than 10 MiB. ``left_out`` has ``path`` and ``bytes`` of 100 of them: repositories
    first, then the largest. ``dirty`` is None where git failed, and ``error`` then has its message.
    """
    checkout = _checkout_around(folder)
    if checkout is None:
        return None
    return _state_of(store, checkout, folder)


def _checkout_around(folder: Path) -> Path | None:
    top = _line_of(folder, "rev-parse", "--show-toplevel")
    if top is None:
        return None
    return Path(top)


def _state_of(store: Store, checkout: Path, folder: Path) -> dict[str, Any]:
    commit = _line_of(checkout, "rev-parse", "--verify", "HEAD")
    base = "HEAD"
    if commit is None:
        base = _EMPTY_TREE
    patch = _dirty_patch(checkout, store, base)
    safe_patch, redacted_lines = redacted_patch(patch.text, os.environ)
    patch_digest = None
    if safe_patch:
        patch_digest = store.put_blob(safe_patch)
    remote = _line_of(checkout, "remote", "get-url", "origin")
    if remote is not None:
        remote = without_password(remote)
    by_size = sorted(patch.left_out, key=lambda name: (not name.endswith("/"), -patch.left_out[name]))
    import_paths = dict.fromkeys(_within(checkout, Path(entry)) for entry in sys.path if entry)
    return {
        "folder": _within(checkout, started_in()) or _within(checkout, folder) or ".",
        "import_paths": [path for path in import_paths if path],
        "commit": commit,
        "branch": _line_of(checkout, "symbolic-ref", "--short", "-q", "HEAD"),
        "remote": remote,
        "dirty": patch.dirty,
        "error": patch.error,
        "patch": patch_digest,
        "patch_redacted": redacted_lines,
        "left_out": [
            {"path": name, "bytes": patch.left_out[name]} for name in sorted(by_size[:_MAX_LEFT_OUT])
        ],
        "left_out_count": len(patch.left_out),
    }


def _relative_to_checkout(arguments: list[str], checkout: Path) -> list[str]:
    """Arguments with ``checkout:code/train.py`` for absolute paths in the checkout, which a rerun replaces.

    A file that git ignores (data, an environment) keeps its path, because a rerun's checkout lacks it.
    """
    options: dict[int, str] = {}
    paths: dict[int, str] = {}
    for place, argument in enumerate(arguments):
        option = ""
        value = argument
        if argument.startswith("-"):
            name, equals, value = argument.rpartition("=")
            option = f"{name}{equals}"
        if Path(value).is_absolute() and (path := _within(checkout, Path(value))):
            options[place] = option
            paths[place] = path
    ignored = _find_ignored(checkout, paths.values())
    relative = list(arguments)
    for place, path in paths.items():
        if path not in ignored:
            relative[place] = f"{options[place]}{CHECKOUT}{path}"
    return relative


def _find_ignored(checkout: Path, paths: Iterable[str]) -> set[str]:
    names = b"".join(os.fsencode(path) + b"\0" for path in paths)
    if not names:
        return set()
    try:
        return set(_names(_git(checkout, "check-ignore", "-z", "--stdin", stdin=names)))
    except (OSError, subprocess.SubprocessError):
        # git exits with status 1 where none is ignored.
        return set()


class _Patch(NamedTuple):
    """The differences from a commit.

    Attributes:
        text: git's patch.
        dirty: whether there are differences; None where git failed.
        left_out: the bytes of files that are not in the patch.
        error: the message of git where it failed.
    """

    text: bytes
    dirty: bool | None
    left_out: dict[str, int]
    error: str | None = None


def _dirty_patch(checkout: Path, store: Store, base: str) -> _Patch:
    """The patch against ``base``.

    Files come and go while git reads them (an editor's, a database's), and git fails at a file that has gone
    since it was listed. Then it is tried again, as long as a run may wait for it, but not after git hung.
    """
    error = ""
    until = time.monotonic() + _SECONDS
    for _ in range(_TRIES):
        try:
            return _patch_now(checkout, store, base)
        except subprocess.CalledProcessError as refused:
            lines = refused.stderr.decode(errors="replace").splitlines()
            messages = [line for line in lines if line.startswith(("error: ", "fatal: "))]
            reason = "; ".join(messages[-3:]) or f"exit status {refused.returncode}"
            error = f"git {refused.cmd[3]}: {reason}"
        except (OSError, subprocess.TimeoutExpired) as failed:
            error = str(failed)
            break
        if time.monotonic() > until:
            break
    return _Patch(b"", None, {}, without_secrets([error], os.environ)[0])


def _patch_now(checkout: Path, store: Store, base: str) -> _Patch:
    """The patch without the store and Dagster's home, which this run and its tools write meanwhile."""
    store_inside = None
    if store.folder is not None and store.folder.resolve().is_relative_to(checkout):
        store_inside = f"{store.folder.resolve().relative_to(checkout).as_posix()}/"

    def is_ours(name: str) -> bool:
        return _TEMPORARY_HOME in f"/{name}" or (store_inside is not None and name.startswith(store_inside))

    git_folder = Path(_git(checkout, "rev-parse", "--absolute-git-dir").decode().strip())
    objects = Path(_git(checkout, "rev-parse", "--git-path", "objects").decode().strip())
    # Scratch indexes and a scratch object folder keep the user's own index and repository as they are.
    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            "GIT_INDEX_FILE": f"{scratch}/index",
            "GIT_OBJECT_DIRECTORY": scratch,
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(checkout / objects),
        }
        if (git_folder / "index").exists():
            # The copy keeps the index's time, because git reads all files that are not older than the index.
            shutil.copy2(git_folder / "index", f"{scratch}/index")
        _git(checkout, "update-index", "-q", "--unmerged", "--refresh", environment=environment)
        changed = {
            name: size
            for name, size in _changed_files(checkout, base, environment).items()
            if not is_ours(name)
        }
        listed = _names(
            _git(checkout, "ls-files", "--others", "--exclude-standard", "-z", environment=environment)
        )
        untracked = {name: _bytes_of(checkout / name) for name in listed if not is_ours(name)}
        # A name with a slash at its end is a repository inside this one. git would at most record its commit,
        # or refuse it.
        accepted = {
            name: size
            for name, size in untracked.items()
            if not name.endswith("/") and not holds_secrets(name)
        }
        taken = _smallest(changed, _CHANGED_LIMIT) | _smallest(accepted, _UNTRACKED_LIMIT)
        environment["GIT_INDEX_FILE"] = f"{scratch}/patched"
        _git(checkout, "read-tree", base, environment=environment)
        names = b"".join(os.fsencode(name) + b"\0" for name in sorted(taken))
        _git(
            checkout,
            "update-index",
            "--add",
            "--remove",
            "--replace",
            "-z",
            "--stdin",
            environment=environment,
            stdin=names,
        )
        # The command is diff-index, not diff, because no setting of the user's (diff.noprefix, diff.context,
        # textconv) may change the patch.
        text = _git(
            checkout,
            "diff-index",
            "--cached",
            "--patch",
            "--binary",
            "--no-ext-diff",
            base,
            environment=environment,
        )
        submodules = _changed_submodules(checkout, environment)
    left_out = {name: size for name, size in (changed | untracked | submodules).items() if name not in taken}
    return _Patch(text, bool(text or submodules or changed.keys() - taken), left_out)


def _changed_submodules(checkout: Path, environment: dict[str, str]) -> dict[str, int]:
    """Submodules, as ``lib/``, with changed or untracked files; the patch has only their commits."""
    if not (checkout / ".gitmodules").is_file():
        return {}
    status = (
        "status",
        "--porcelain=v2",
        "--ignore-submodules=none",
        "--untracked-files=no",
        "--no-renames",
        "-z",
    )
    entries = [
        line.split(" ", 8)
        for line in _names(_git(checkout, *status, environment=environment))
        if line.startswith("1 ")
    ]
    # The third field is SCMU: S, and then whether the commit, its files or untracked files have changed.
    return {f"{fields[8]}/": 0 for fields in entries if fields[2].startswith("S") and fields[2][2:] != ".."}


def _changed_files(checkout: Path, base: str, environment: dict[str, str]) -> dict[str, int]:
    """The tracked files that differ from ``base``, with their bytes before and after together."""
    fields = _names(
        _git(
            checkout,
            "diff-index",
            "--raw",
            "--no-abbrev",
            "--ignore-submodules=dirty",
            "-z",
            base,
            environment=environment,
        )
    )
    before = {name: entry.split()[2] for entry, name in zip(fields[::2], fields[1::2], strict=True)}
    if not before:
        return {}
    query = "".join(f"{blob}\n" for blob in before.values()).encode()
    sizes = _git(checkout, "cat-file", "--batch-check=%(objectsize)", stdin=query).decode().splitlines()
    changed = {}
    for name, size in zip(before, sizes, strict=True):
        changed[name] = _bytes_of(checkout / name)
        if size.isdigit():  # git prints "missing" for a blob that it does not have.
            changed[name] += int(size)
    return changed


def _smallest(sizes: Mapping[str, int], limit: int) -> set[str]:
    """The smallest files that together have at most ``limit`` bytes."""
    taken = set()
    total = 0
    for size, name in sorted((size, name) for name, size in sizes.items()):
        total += size
        if total > limit:
            break
        taken.add(name)
    return taken


def _bytes_of(path: Path) -> int:
    try:
        if path.is_dir():
            return 0
        return path.lstat().st_size
    except OSError:  # The file was deleted.
        return 0


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _git(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None, stdin: bytes = b""
) -> bytes:
    """Run git and return its output.

    Raises:
        OSError: it is missing.
        subprocess.TimeoutExpired: it hangs.
        subprocess.CalledProcessError: it refuses.
    """
    command = ["git", "-C", str(folder), *arguments]
    variables = {**os.environ, **(environment or {}), "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(
        command, input=stdin, capture_output=True, check=True, timeout=_SECONDS, env=variables
    ).stdout


def _line_of(folder: Path, *arguments: str) -> str | None:
    """The line that git prints; None where git is missing, hangs or fails, because a run needs no git."""
    try:
        return _git(folder, *arguments).decode().strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def _within(checkout: Path, path: Path) -> str | None:
    """A path relative to the checkout; None outside of it, and for an installed package within it."""
    path = path.resolve()
    checkout = checkout.resolve()
    if not path.is_relative_to(checkout) or "site-packages" in path.parts:
        return None
    return path.relative_to(checkout).as_posix()


def _lockfile(folder: Path) -> dict[str, str] | None:
    for parent in (folder, *folder.parents):
        for name in LOCKFILES:
            if (parent / name).is_file():
                return {"name": name, "sha256": hashlib.sha256((parent / name).read_bytes()).hexdigest()}
        if (parent / ".git").exists():
            return None
    return None


def _packages() -> dict[str, dict[str, str]]:
    """The installed packages: ``packages`` with versions, ``packages_from`` with origins.

    If a package is installed twice, the one that is imported counts. The origin of a package that does not
    come from an index is a folder, a file or a repository (PEP 610).

    Only two lines of the metadata are searched for, because parsing all of it, for hundreds of packages, took
    most of the time that a run needs to begin.
    """
    from importlib.metadata import distributions

    versions: dict[str, str] = {}
    origins: dict[str, str] = {}
    for dist in distributions():
        about = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
        name = _NAME.search(about)
        version = _VERSION.search(about)
        if not name or not version or name[1] in versions:
            continue
        if name[1] == "wandb" and (dist.read_text("INSTALLER") or "").strip() == "halving":
            continue  # What `halving run --as-wandb` puts in its place is no package that could be installed.
        versions[name[1]] = version[1]
        direct_url = dist.read_text("direct_url.json")
        if direct_url:
            origins[name[1]] = _origin(direct_url)
    return {
        "packages": {name: versions[name] for name in sorted(versions, key=str.lower)},
        "packages_from": {name: origins[name] for name in sorted(origins, key=str.lower)},
    }


def _cuda() -> str | None:
    """The CUDA version of the installed PyTorch, such as ``13.0``; None without PyTorch or without CUDA.

    It is read from PyTorch's text, because importing PyTorch takes seconds, and a rerun needs the version
    before it starts.
    """
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError:  # A test has put a module of that name in its place.
        return None
    if spec is None:
        return None
    for folder in spec.submodule_search_locations or ():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            built_for = _CUDA.search(Path(folder, "version.py").read_text())
            return built_for and built_for[1]
    return None


def _from_checkout(origins: dict[str, str], checkout: Path) -> dict[str, str]:
    """The origins of packages, with ``checkout:sdk`` for those that were installed from the checkout."""
    inside = {
        name: _within(checkout, Path(unquote(urlparse(url).path)))
        for name, url in origins.items()
        if url.startswith("file:")
    }
    return origins | {name: f"{CHECKOUT}{path}" for name, path in inside.items() if path}


def _origin(direct_url: str) -> str:
    """The source in a ``direct_url.json`` from which pip can install the package again."""
    direct = json.loads(direct_url)
    url = without_password(str(direct["url"]))
    vcs = direct.get("vcs_info")
    if not vcs:
        return url
    return f"{vcs['vcs']}+{url}@{vcs['commit_id']}"


def _hardware() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": usable_cpus(),
        "memory_bytes": usable_memory(),
        "gpus": _gpus(),
        # The worker or the cluster has set these, to choose the GPUs that this process may use.
        "visible_gpus": {name: os.environ[name] for name in GPU_VARIABLES if name in os.environ},
    }


def _gpus() -> list[str]:
    command = ["nvidia-smi", "--query-gpu=name,uuid,driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return output.decode().strip().splitlines()
