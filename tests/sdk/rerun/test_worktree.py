"""A temporary worktree has the code as it ran, and leaves the user's repository as it is."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from halving import NotFound, Store
from halving.records.provenance import git_state
from halving.rerun.worktree import worktree
from tests.sdk.records.checkouts import git
from tests.sdk.rerun.records import plan

pytestmark = pytest.mark.usefixtures("no_git_settings")


def test_a_worktree_of_the_users_whose_folder_is_away_keeps_its_registration(
    store: Store, checkout: Path, tmp_path: Path
) -> None:
    git(checkout, "worktree", "add", "--quiet", "--detach", str(tmp_path / "mine"))
    shutil.move(tmp_path / "mine", tmp_path / "away")  # on a disk that is not mounted now
    recorded = replace(plan(), commit=git(checkout, "rev-parse", "HEAD"))
    with worktree(checkout, recorded, store) as code:
        assert (code / "code" / "model.py").read_text() == "RATE = 1\n"
    shutil.move(tmp_path / "away", tmp_path / "mine")
    assert git(tmp_path / "mine", "status", "--porcelain") == ""
    assert git(checkout, "worktree", "list").count("\n") == 1


@pytest.fixture
def submodule(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository in the checkout, as its submodule ``lib``."""
    for name, value in (("COUNT", "1"), ("KEY_0", "protocol.file.allow"), ("VALUE_0", "always")):
        monkeypatch.setenv(f"GIT_CONFIG_{name}", value)
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "--quiet")
    (origin / "lib.py").write_text("")
    git(origin, "add", ".")
    git(origin, "commit", "--quiet", "--message=lib")
    git(checkout, "submodule", "--quiet", "add", str(origin), "lib")
    git(checkout, "commit", "--quiet", "--all", "--message=with lib")
    return checkout / "lib"


@pytest.mark.parametrize("name", ["lib.py", "new.py"])
def test_changes_in_a_submodule_are_named_as_not_recorded(
    store: Store, checkout: Path, submodule: Path, name: str
) -> None:
    state = git_state(store, checkout)
    assert state is not None
    assert state["left_out"] == []
    (submodule / name).write_text("changed\n")
    state = git_state(store, checkout)
    assert state is not None
    assert (state["dirty"], state["left_out"], state["error"]) == (True, [{"path": "lib/", "bytes": 0}], None)


def test_a_submodule_that_is_gone_is_named(
    store: Store, checkout: Path, submodule: Path, tmp_path: Path
) -> None:
    recorded = replace(plan(), commit=git(checkout, "rev-parse", "HEAD"))
    with worktree(checkout, recorded, store) as code:
        assert (code / "lib" / "lib.py").exists()
    shutil.rmtree(tmp_path / "origin")
    with (
        pytest.raises(NotFound, match=r"a submodule of run p/r cannot be had any more: .*origin.*lib"),
        worktree(checkout, recorded, store),
    ):
        pass
    assert git(checkout, "worktree", "list").count("\n") == 0
