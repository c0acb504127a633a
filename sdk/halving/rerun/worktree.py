"""A run's code in a folder of its own: a temporary git worktree of its commit, with its changes."""

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
    if folder.is_dir():
        answer = _git(folder, "rev-parse", "--show-toplevel")
        if answer.returncode == 0:
            return Path(answer.stdout.decode().strip())
    raise InvalidInput(
        f"repository {str(folder)!r} is not accepted: give a folder in a git checkout that has the run's "
        "commit"
    )


def check_commit(repository: Path, plan: Plan) -> None:
    """Check that the repository has the run's commit.

    Raises:
        NotFound: the commit is gone.
        InvalidInput: the run has no commit.
    """
    if plan.commit is None:
        raise InvalidInput(
            f"run {plan.name} has no commit that could be checked out: its code is in its image"
        )
    if _git(repository, "cat-file", "-e", f"{plan.commit}^{{commit}}").returncode:
        origin = ""
        if plan.remote:
            origin = f" (the run's was {plan.remote})"
        raise NotFound(
            f"the commit {plan.commit} of run {plan.name} is not in the repository {repository}{origin}: "
            f"fetch it there (git fetch origin {plan.commit}), or name another by --repository"
        )


def check_patch(store: Store, plan: Plan) -> None:
    """Check that the store has the run's changes over its commit, without reading them.

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
    """Restore the code that ran, until the block ends: commit, changes and untracked files.

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
                _run(code, "apply", "--binary", "--whitespace=nowarn", stdin=patch)
            if (code / ".gitmodules").exists():
                _fetch_submodules(code, plan)
            yield code
        finally:
            _git(repository, "worktree", "remove", "--force", str(code))


def _worktrees() -> Path:
    """The folder of worktrees on this machine's temporary disk.

    Its name is unique among all machines that share the repository.
    """
    folder = folder_of_user("rerun")
    return next(folder.glob(f"{_DISK}*"), None) or Path(tempfile.mkdtemp(prefix=_DISK, dir=folder))


def _forget_abandoned(repository: Path) -> None:
    """Have git forget this machine's worktrees whose folders are gone, because their reruns were killed.

    Worktrees of others, perhaps on a disk that is not mounted now, stay.
    """
    ours = f"worktree {_worktrees().resolve()}/"
    listing = _git(repository, "worktree", "list", "--porcelain").stdout.decode(errors="replace")
    for line in listing.splitlines():
        path = line.removeprefix("worktree ")
        if line.startswith(ours) and not Path(path).exists():
            # The second --force removes also a worktree that a killed git has left locked.
            _git(repository, "worktree", "remove", "--force", "--force", path)


def _fetch_submodules(code: Path, plan: Plan) -> None:
    done = _git(code, "submodule", "update", "--init", "--recursive")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").splitlines()
        errors = "; ".join(line for line in lines if line.startswith(("fatal: ", "error: ")))
        raise NotFound(
            f"a submodule of run {plan.name} cannot be had any more: {errors}. See that its address in "
            ".gitmodules, and the commit that the run had of it, can be fetched from here"
        )


def _patch(plan: Plan, store: Store) -> bytes | None:
    check_patch(store, plan)
    if plan.patch is None:
        return None
    return store.get_blob(plan.patch)


def _run(folder: Path, *arguments: str, stdin: bytes | None = None) -> None:
    done = _git(folder, *arguments, stdin=stdin)
    if done.returncode:
        raise InvalidInput(
            f"git {arguments[0]} failed in {folder}: {done.stderr.decode(errors='replace').strip()}"
        )


def _git(folder: Path, *arguments: str, stdin: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
    try:
        return subprocess.run(
            ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments],
            input=stdin,
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise InvalidInput(f"a rerun needs git: {error}") from None
