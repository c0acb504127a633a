"""The code of a run in a folder of its own: a temporary git worktree of its commit, with what it had changed
over it.
"""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halving.errors import InvalidInput, NotFound
from halving.machine.temporary_folders import folder_of_user, temporary_folder
from halving.rerun.plan import Plan
from halving.store.store import Store

_DISK = "disk-"


def repository_at(folder: Path) -> Path:
    """The git checkout around a folder.

    Raises:
        InvalidInput: there is none.
    """
    found = _git(folder, "rev-parse", "--show-toplevel") if folder.is_dir() else None
    if found is None or found.returncode:
        raise InvalidInput(
            f"repository {str(folder)!r} is not accepted: give a folder in a git checkout that has the "
            "run's commit"
        )
    return Path(found.stdout.decode().strip())


def check_commit(repository: Path, plan: Plan) -> None:
    """See that the commit is there.

    Raises:
        NotFound: the commit is gone.
        InvalidInput: there never was one.
    """
    if plan.commit is None:
        raise InvalidInput(
            f"run {plan.name} has no commit that could be checked out: its code is in its image"
        )
    if _git(repository, "cat-file", "-e", f"{plan.commit}^{{commit}}").returncode:
        origin = f" (the run's was {plan.remote})" if plan.remote else ""
        raise NotFound(
            f"the commit {plan.commit} of run {plan.name} is not in the repository {repository}{origin}: "
            f"fetch it there (git fetch origin {plan.commit}), or name another by --repository"
        )


def check_patch(store: Store, plan: Plan) -> None:
    """See that the changes over the commit are there, without reading them.

    Raises:
        NotFound: they are gone.
    """
    if plan.patch is not None and not store.has_blob(plan.patch):
        raise NotFound(
            f"the changes that run {plan.name} had over its commit are gone: no blob {plan.patch} in "
            f"{store.root}"
        )


@contextmanager
def worktree(repository: Path, plan: Plan, store: Store) -> Iterator[Path]:
    """The code as it ran, until the block ends: commit, changes and untracked files.

    The repository's own files stay as they are.

    Raises:
        NotFound: the commit, the patch or a submodule is gone.
        InvalidInput: the patch does not apply.
        StoreError: the patch cannot be read.
    """
    check_commit(repository, plan)
    patch = _patch(plan, store)
    with temporary_folder(_worktrees()) as scratch:
        _forget_abandoned(repository)
        code = scratch.resolve() / "code"
        try:
            _run(repository, "worktree", "add", "--detach", "--force", str(code), str(plan.commit))
            if patch:
                _run(code, "apply", "--binary", "--whitespace=nowarn", given=patch)
            if (code / ".gitmodules").exists():
                _fetch_submodules(code, plan)
            yield code
        finally:
            _git(repository, "worktree", "remove", "--force", str(code))


def _worktrees() -> Path:
    """The folder of the worktrees on this machine's temporary disk.

    No other machine that has the repository has one of this name.
    """
    folder = folder_of_user("rerun")
    return next(folder.glob(f"{_DISK}*"), None) or Path(tempfile.mkdtemp(prefix=_DISK, dir=folder))


def _forget_abandoned(repository: Path) -> None:
    """Have git forget the worktrees of killed reruns, whose folders are gone; those of others, on a disk that
    is not mounted now, stay.
    """
    ours = f"worktree {_worktrees().resolve()}/"
    for line in (
        _git(repository, "worktree", "list", "--porcelain").stdout.decode(errors="replace").splitlines()
    ):
        if line.startswith(ours) and not Path(path := line.removeprefix("worktree ")).exists():
            # twice: also one that git was killed at
            _git(repository, "worktree", "remove", "--force", "--force", path)


def _fetch_submodules(code: Path, plan: Plan) -> None:
    done = _git(code, "submodule", "update", "--init", "--recursive")
    if done.returncode:
        said = [
            line
            for line in done.stderr.decode(errors="replace").splitlines()
            if line.startswith(("fatal: ", "error: "))
        ]
        raise NotFound(
            f"a submodule of run {plan.name} cannot be had any more: {'; '.join(said)}. See that its "
            "address in "
            ".gitmodules, and the commit that the run had of it, can be fetched from here"
        )


def _patch(plan: Plan, store: Store) -> bytes | None:
    check_patch(store, plan)
    return store.get_blob(plan.patch) if plan.patch is not None else None


def _run(folder: Path, *arguments: str, given: bytes | None = None) -> None:
    done = _git(folder, *arguments, given=given)
    if done.returncode:
        raise InvalidInput(
            f"git {arguments[0]} failed in {folder}: {done.stderr.decode(errors='replace').strip()}"
        )


def _git(folder: Path, *arguments: str, given: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments],
            input=given,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise InvalidInput(f"a rerun needs git: {error}") from None
