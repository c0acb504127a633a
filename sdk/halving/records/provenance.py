"""Where a run comes from: code, environment and machine, complete when the run starts."""

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
"""Begins the digest of an image's manifest."""
CHECKOUT = "checkout:"
"""Before a path within the checkout: the folder from which a package was installed, or an argument."""
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
"""What :func:`capture` gives, of a run whose process did not say."""

_UNTRACKED_LIMIT = 10 * 2**20  # bytes of untracked files in the patch
_CHANGED_LIMIT = 32 * 2**20  # bytes of changed files in the patch, before and after
_LISTED = 100  # files that are left out
_SECONDS = 60.0  # that git may take
_TRIES = 5  # one in 25 fails where a file comes and goes all the time
# Dagster's databases, where no DAGSTER_HOME is set: in the working directory, for one command
_TEMPORARY_HOME = "/.tmp_dagster_home_"
# the first are those of the header
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
    found = environment()
    checkout = _checkout_around(folder)
    arguments = sys.orig_argv[1:]
    origins = found["packages_from"]
    return {
        "git": _state_of(store, checkout, folder) if checkout else None,
        "lockfile": _lockfile(folder),
        **found,
        "packages_from": _from_checkout(origins, checkout) if checkout else origins,
        "command": without_secrets([sys.executable, *sys.argv], os.environ),
        # With which the interpreter can be started again:
        "arguments": without_secrets(
            _of_checkout(arguments, checkout) if checkout else arguments, os.environ
        ),
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
    """The image that this process runs in, as far as it was told; where one variable has a digest alone, with
    the name beside it.

    Args:
        named: what the image was called by whoever started it.
    """
    told = [found for found in (*map(os.environ.get, IMAGE_VARIABLES), named) if found]
    name = next((found for found in told if not found.startswith(DIGEST)), None)
    if name and told[0].startswith(DIGEST):
        return f"{_without_tag(name)}@{told[0]}"
    return told[0] if told else None


def _without_tag(name: str) -> str:
    """``registry:5000/train`` of ``registry:5000/train:3`` or of ``registry:5000/train@sha256:…``."""
    path, slash, last = name.partition("@")[0].rpartition("/")
    return f"{path}{slash}{last.partition(':')[0]}"


def git_state(store: Store, folder: Path) -> dict[str, Any] | None:
    """Commit, branch, remote and dirty patch of the checkout around ``folder``; None outside of git.

    ``folder`` is the one within the checkout in which the script was started (else ``folder``), and
    ``import_paths`` what of the checkout Python imports from, as a rerun needs them.

    The patch is binary-safe and holds untracked files, too, so that ``git checkout COMMIT && git apply
    PATCH`` gives the very code that ran; except for ``patch_redacted`` lines, in which a secret was hidden
    (:func:`halving.records.redaction.redacted_patch`), and for ``left_out_count`` files: nested repositories
    and what was changed within submodules (``lib/``), files that are made to hold secrets, like ``.env``, and
    the largest ones where changed files come to more than 32 MiB (before and after together), or untracked
    ones to more than 10 MiB. ``left_out`` has ``path`` and ``bytes`` of 100 of them: of repositories first,
    then of the largest. ``dirty`` is None where git could not say, and ``error`` then holds its words.
    """
    checkout = _checkout_around(folder)
    return _state_of(store, checkout, folder) if checkout else None


def _checkout_around(folder: Path) -> Path | None:
    top = _line_of(folder, "rev-parse", "--show-toplevel")
    return Path(top) if top else None


def _state_of(store: Store, checkout: Path, folder: Path) -> dict[str, Any]:
    commit = _line_of(checkout, "rev-parse", "--verify", "HEAD")
    patch = _dirty_patch(checkout, store, "HEAD" if commit else _EMPTY_TREE)
    shown, redacted = redacted_patch(patch.text, os.environ)
    remote = _line_of(checkout, "remote", "get-url", "origin")
    largest = sorted(patch.left_out, key=lambda name: (not name.endswith("/"), -patch.left_out[name]))[
        :_LISTED
    ]
    return {
        "folder": _within(checkout, started_in()) or _within(checkout, folder) or ".",
        "import_paths": [
            path
            for path in dict.fromkeys(_within(checkout, Path(entry)) for entry in sys.path if entry)
            if path
        ],
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


def _of_checkout(arguments: list[str], checkout: Path) -> list[str]:
    """Arguments with ``checkout:code/train.py`` for an absolute path in the checkout, so that a rerun takes
    what lies there in its own.

    What git ignores (data, an environment) is not in a rerun's checkout, so it keeps its path.
    """
    values = {
        place: argument.rpartition("=") if argument.startswith("-") else ("", "", argument)
        for place, argument in enumerate(arguments)
    }
    paths = {place: value for place, (_, _, value) in values.items() if Path(value).is_absolute()}
    inside = {place: path for place, value in paths.items() if (path := _within(checkout, Path(value)))}
    ignored = _ignored(checkout, inside.values())
    named = {
        place: f"{''.join(values[place][:2])}{CHECKOUT}{path}"
        for place, path in inside.items()
        if path not in ignored
    }
    return [named.get(place, argument) for place, argument in enumerate(arguments)]


def _ignored(checkout: Path, paths: Iterable[str]) -> set[str]:
    asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
    try:
        return set(_names(_git(checkout, "check-ignore", "-z", "--stdin", given=asked))) if asked else set()
    except (OSError, subprocess.SubprocessError):  # its status is 1 where none is ignored
        return set()


class _Patch(NamedTuple):
    """What differs from a commit: as git prints it, and the files that are not in it with their bytes; or why
    git could not say.
    """

    text: bytes
    dirty: bool | None
    left_out: dict[str, int]
    error: str | None = None


def _dirty_patch(checkout: Path, store: Store, base: str) -> _Patch:
    """The patch against ``base``.

    Files come and go while git reads them (an editor's, a database's), and git gives up at one that has gone
    since it was listed. Then it is tried again, for as long as a run may wait for it; but not when git hangs.
    """
    error = ""
    until = time.monotonic() + _SECONDS
    for _ in range(_TRIES):
        try:
            return _patch_now(checkout, store, base)
        except subprocess.CalledProcessError as refused:
            said = [
                line
                for line in refused.stderr.decode(errors="replace").splitlines()
                if line.startswith(("error: ", "fatal: "))
            ]
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
            # With its time: git looks into files that are not older than the index, whatever their size and
            # time say.
            shutil.copy2(git_folder / "index", f"{scratch}/index")
        _git(checkout, "update-index", "-q", "--unmerged", "--refresh", environment=environment)
        changed = {
            name: size for name, size in _changed(checkout, base, environment).items() if not is_ours(name)
        }
        listed = _names(
            _git(checkout, "ls-files", "--others", "--exclude-standard", "-z", environment=environment)
        )
        untracked = {name: _bytes_of(checkout / name) for name in listed if not is_ours(name)}
        # A name with a slash at its end is a repository inside this one: git would note its commit at most,
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
            given=names,
        )
        # diff-index, not diff: no setting of the user's (diff.noprefix, diff.context, textconv) may change
        # the patch.
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
    """Submodules with changed or untracked files in them, as ``lib/``: their commit is in the patch, those
    files are not.
    """
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
    # The third field is S, and then whether its commit, its files or what is untracked in it has changed:
    # SCMU.
    return {f"{fields[8]}/": 0 for fields in entries if fields[2].startswith("S") and fields[2][2:] != ".."}


def _changed(checkout: Path, base: str, environment: dict[str, str]) -> dict[str, int]:
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
    asked = "".join(f"{blob}\n" for blob in before.values()).encode()
    sizes = (
        _git(checkout, "cat-file", "--batch-check=%(objectsize)", given=asked).decode().splitlines()
        if asked
        else []
    )
    return {
        name: _bytes_of(checkout / name) + (int(size) if size.isdigit() else 0)
        for name, size in zip(before, sizes, strict=True)
    }


def _smallest(sizes: Mapping[str, int], limit: int) -> set[str]:
    """As many of the files as come to ``limit`` bytes at most, the smallest first."""
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
        return 0 if path.is_dir() else path.lstat().st_size
    except OSError:  # deleted
        return 0


def _names(output: bytes) -> list[str]:
    return [os.fsdecode(name) for name in output.split(b"\0") if name]


def _git(
    folder: Path, *arguments: str, environment: dict[str, str] | None = None, given: bytes = b""
) -> bytes:
    """What git prints.

    Raises:
        OSError: it is missing.
        subprocess.TimeoutExpired: it hangs.
        subprocess.CalledProcessError: it refuses.
    """
    command = ["git", "-C", str(folder), *arguments]
    variables = {**os.environ, **(environment or {}), "GIT_OPTIONAL_LOCKS": "0"}
    return subprocess.run(
        command, input=given, capture_output=True, check=True, timeout=_SECONDS, env=variables
    ).stdout


def _line_of(folder: Path, *arguments: str) -> str | None:
    """The line that git prints; None where it is missing, hangs or refuses: a run starts with or without
    git.
    """
    try:
        return _git(folder, *arguments).decode().strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


def _within(checkout: Path, path: Path) -> str | None:
    """A path relative to the checkout; None outside of it, and for what is installed in an environment within
    it.
    """
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
    """``packages``: the versions of what is installed, by name; of a package that is there twice the one that
    is imported.

    ``packages_from``: where those came from that were not taken from an index: a folder, a file or a
    repository (PEP 610).

    Of the metadata two lines are looked for: to parse all of it, for hundreds of packages, took most of the
    time that a run needs to begin.
    """
    from importlib.metadata import distributions

    found: dict[str, str] = {}
    origins: dict[str, str] = {}
    for dist in distributions():
        about = dist.read_text("METADATA") or dist.read_text("PKG-INFO") or ""
        name = _NAME.search(about)
        version = _VERSION.search(about)
        if not name or not version or name[1] in found:
            continue
        found[name[1]] = version[1]
        if origin := dist.read_text("direct_url.json"):
            origins[name[1]] = _origin(origin)
    return {
        "packages": {name: found[name] for name in sorted(found, key=str.lower)},
        "packages_from": {name: origins[name] for name in sorted(origins, key=str.lower)},
    }


def _cuda() -> str | None:
    """The CUDA version that the installed PyTorch was built for, such as ``13.0``; None without PyTorch, or
    of a build without CUDA.

    It is read from PyTorch's text: to import PyTorch takes seconds, and a rerun asks before it starts.
    """
    try:
        spec = importlib.util.find_spec("torch")
    except ValueError:  # a module of that name that a test has put in its place
        return None
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        with contextlib.suppress(OSError, UnicodeDecodeError):
            built_for = _CUDA.search(Path(folder, "version.py").read_text())
            return built_for[1] if built_for else None
    return None


def _from_checkout(origins: dict[str, str], checkout: Path) -> dict[str, str]:
    """Where packages came from, with ``checkout:sdk`` for those that were installed from the checkout."""
    inside = {
        name: _within(checkout, Path(unquote(urlparse(url).path)))
        for name, url in origins.items()
        if url.startswith("file:")
    }
    return origins | {name: f"{CHECKOUT}{path}" for name, path in inside.items() if path}


def _origin(direct_url: str) -> str:
    """What pip installs a package from again, of its ``direct_url.json``."""
    given = json.loads(direct_url)
    url = without_password(str(given["url"]))
    vcs = given.get("vcs_info")
    return f"{vcs['vcs']}+{url}@{vcs['commit_id']}" if vcs else url


def _hardware() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpus": usable_cpus(),
        "memory_bytes": usable_memory(),
        "gpus": _gpus(),
        # Which GPUs this process may use: its worker or the cluster has set these.
        "visible_gpus": {name: os.environ[name] for name in GPU_VARIABLES if name in os.environ},
    }


def _gpus() -> list[str]:
    asked = ["nvidia-smi", "--query-gpu=name,uuid,driver_version", "--format=csv,noheader"]
    try:
        return (
            subprocess.run(asked, capture_output=True, check=True, timeout=10)
            .stdout.decode()
            .strip()
            .splitlines()
        )
    except (OSError, subprocess.SubprocessError):
        return []
