"""The patch of a checkout: with it and the commit, the very files that ran can be reproduced."""

import os
import subprocess
from pathlib import Path

import pytest

from halving import Store
from halving.records import provenance
from halving.records.provenance import git_state
from tests.sdk.records.checkouts import git, write

pytestmark = pytest.mark.usefixtures("no_git_settings")


def make_dirty(folder: Path) -> None:
    """Every kind of change that a checkout can hold."""
    lines = (folder / "train.py").read_bytes().splitlines(keepends=True)
    write(folder, "train.py", b"".join([*lines[:20], b"changed\n", *lines[21:49], b"no newline at the end"]))
    write(folder, "package/model.py", b"width = 4\n")
    git(folder, "add", "package/model.py")
    write(folder, "package/model.py", b"width = 5\n")  # staged, and changed again
    git(folder, "rm", "--quiet", "old.py")
    (folder / "run.sh").chmod(0o755)
    write(folder, "logo.png", bytes(reversed(range(256))))
    write(folder, "new/untracked file.py", b"x = 1\n")
    write(folder, "new/ünïcode.bin", b"\0\xff\r\n" * 100)
    write(folder, "empty.py", b"")
    write(folder, "windows.txt", b"one\r\ntwo\r\n")
    (folder / "link").symlink_to("train.py")
    write(folder, "ignored.log", b"never part of the code")


def tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Kind and content of all files that belong to the code."""
    contents = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            contents[name] = ("link", str(path.readlink()).encode())
        elif path.is_file() and not name.startswith(".git/") and path.suffix != ".log":
            contents[name] = (
                "executable" if os.access(path, os.X_OK) and path.stat().st_mode & 0o100 else "file",
                path.read_bytes(),
            )
    return contents


def reproduce(store: Store, checkout: Path, target: Path) -> dict[str, tuple[str, bytes]]:
    """The files of ``git checkout COMMIT && git apply PATCH`` in a clean clone."""
    state = git_state(store, checkout)
    assert state is not None
    git(checkout.parent, "clone", "--quiet", str(checkout), str(target))
    if state["commit"]:
        git(target, "checkout", "--quiet", state["commit"])
    if state["patch"]:
        (target.parent / "patch").write_bytes(store.get_blob(state["patch"]))
        git(target, "apply", "--whitespace=nowarn", str(target.parent / "patch"))
    return tree(target)


def test_a_clean_checkout_is_its_commit(store: Store, checkout: Path) -> None:
    assert git_state(store, checkout) == {
        "folder": ".",
        "import_paths": [],
        "commit": git(checkout, "rev-parse", "HEAD"),
        "branch": "main",
        "remote": None,
        "dirty": False,
        "error": None,
        "patch": None,
        "patch_redacted": 0,
        "left_out": [],
        "left_out_count": 0,
    }


def test_commit_and_patch_reproduce_the_very_files(store: Store, checkout: Path, tmp_path: Path) -> None:
    make_dirty(checkout)
    assert reproduce(store, checkout, tmp_path / "clone") == tree(checkout)


@pytest.mark.parametrize(
    "setting",
    [
        "diff.noprefix=true",
        "diff.mnemonicPrefix=true",
        "diff.context=0",
        "diff.external=/bin/false",
        "diff.renames=copies",
        "color.ui=always",
        "diff.upper.textconv=tr a-z A-Z <",
    ],
)
def test_no_setting_of_the_user_changes_what_is_reproduced(
    store: Store, checkout: Path, tmp_path: Path, setting: str
) -> None:
    key, _, value = setting.partition("=")
    git(checkout, "config", key, value)
    write(checkout, ".gitattributes", b"*.py diff=upper\n")
    make_dirty(checkout)
    assert reproduce(store, checkout, tmp_path / "clone") == tree(checkout)


def test_a_change_of_the_same_size_in_the_moment_of_the_commit_is_seen(store: Store, checkout: Path) -> None:
    for key, value in (("core.checkStat", "minimal"), ("core.trustctime", "false")):
        # the clock of such a moment stands still
        git(checkout, "config", key, value)
    mtime = int((checkout / "train.py").stat().st_mtime) - 100
    os.utime(checkout / "train.py", (mtime, mtime))
    git(checkout, "update-index", "--refresh")
    write(checkout, "train.py", (checkout / "train.py").read_bytes().replace(b"7", b"8"))
    os.utime(checkout / "train.py", (mtime, mtime))
    os.utime(checkout / ".git/index", (mtime, mtime))
    state = git_state(store, checkout)
    assert state is not None
    assert state["dirty"]


def test_the_patch_covers_the_whole_checkout_wherever_the_run_starts(store: Store, checkout: Path) -> None:
    make_dirty(checkout)
    assert git_state(store, checkout / "package") == {**git_state(store, checkout), "folder": "package"}


def test_a_repository_without_commits_is_all_patch(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "fresh"
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main")
    write(folder, "train.py", b"x = 1\n")
    write(folder, "data.bin", bytes(range(256)))
    state = git_state(store, folder)
    assert state is not None
    assert (state["commit"], state["branch"], state["dirty"]) == (None, "main", True)
    assert reproduce(store, folder, tmp_path / "clone") == tree(folder)


def test_a_worktree_is_described_as_itself(store: Store, checkout: Path, tmp_path: Path) -> None:
    git(checkout, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    write(tmp_path / "side", "train.py", b"changed in the worktree\n")
    state = git_state(store, tmp_path / "side")
    assert state is not None
    assert (state["branch"], state["dirty"]) == ("side", True)
    assert b"changed in the worktree" in store.get_blob(state["patch"])


def test_a_detached_head_has_a_commit_and_no_branch(store: Store, checkout: Path) -> None:
    git(checkout, "checkout", "--quiet", "--detach")
    state = git_state(store, checkout)
    assert state is not None
    assert (state["commit"], state["branch"]) == (git(checkout, "rev-parse", "HEAD"), None)


def test_the_repository_of_the_user_is_only_read(store: Store, checkout: Path) -> None:
    make_dirty(checkout)

    def everything() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (checkout / ".git").rglob("*") if path.is_file()}

    before = everything()
    files = tree(checkout)
    assert git_state(store, checkout) is not None
    assert everything() == before
    assert tree(checkout) == files


def test_the_same_code_is_the_same_patch(store: Store, checkout: Path) -> None:
    make_dirty(checkout)
    assert git_state(store, checkout) == git_state(store, checkout)


def test_the_patch_has_the_smallest_untracked_files_up_to_ten_mebibytes(store: Store, checkout: Path) -> None:
    write(checkout, "small.py", b"x = 1\n")
    write(checkout, "data/limit.bin", b"\1" * (10 * 2**20 - 6))
    write(checkout, "data/a little more.bin", b"\1" * (10 * 2**20 - 5))
    write(checkout, "weights[1].bin", b"\1" * (10 * 2**20 + 1))
    state = git_state(store, checkout)
    assert state is not None
    larger = [("data/a little more.bin", 10 * 2**20 - 5), ("weights[1].bin", 10 * 2**20 + 1)]
    assert state["left_out"] == [{"path": name, "bytes": size} for name, size in larger]
    patch = store.get_blob(state["patch"])
    assert b"small.py" in patch
    assert b"limit.bin" in patch
    assert b"more.bin" not in patch
    assert b"weights" not in patch


def test_a_long_list_of_what_is_left_out_ends_with_a_count(
    store: Store, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_UNTRACKED_LIMIT", 10)
    for number in range(150):
        write(checkout, f"data/{number:03d}", b"x" * (11 + number))
    state = git_state(store, checkout)
    assert state is not None
    assert (state["left_out_count"], state["patch"]) == (150, None)
    assert state["left_out"] == [
        {"path": f"data/{number:03d}", "bytes": 11 + number} for number in range(50, 150)
    ]


@pytest.mark.parametrize("change", ["written", "staged", "deleted"])
def test_a_large_change_of_a_tracked_file_is_left_out_and_the_tree_is_still_dirty(
    store: Store, checkout: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    write(checkout, "table.csv", b"1,2,3\n" * 1000)
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=second")
    monkeypatch.setattr(provenance, "_CHANGED_LIMIT", 5000)
    if change == "deleted":
        (checkout / "table.csv").unlink()
    else:
        write(checkout, "table.csv", b"1,2,4\n" * 1000)
    if change == "staged":
        git(checkout, "add", ".")
    state = git_state(store, checkout)
    assert state is not None
    assert (state["dirty"], state["patch"]) == (True, None)
    assert state["left_out"] == [{"path": "table.csv", "bytes": 6000 if change == "deleted" else 12_000}]
    write(checkout, "train.py", b"changed\n")
    state = git_state(store, checkout)
    assert state is not None
    assert b"+changed" in store.get_blob(state["patch"])
    assert b"table.csv" not in store.get_blob(state["patch"])


def test_files_that_were_only_touched_or_copied_are_no_change(
    store: Store, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "_CHANGED_LIMIT", 0)
    for path in checkout.glob("*.*"):
        if path.is_file():
            os.utime(path, (1, 1))
    state = git_state(store, checkout)
    assert state is not None
    assert (state["dirty"], state["left_out"]) == (False, [])


def test_a_file_that_is_intended_to_be_added_or_became_a_folder_is_reproduced(
    store: Store, checkout: Path, tmp_path: Path
) -> None:
    write(checkout, "intended.py", b"x = 1\n")
    git(checkout, "add", "--intent-to-add", "intended.py")
    (checkout / "old.py").unlink()
    write(checkout, "old.py/now a folder.py", b"x = 2\n")
    (checkout / "package/model.py").unlink()
    (checkout / "package").rmdir()
    write(checkout, "package", b"now a file\n")
    assert reproduce(store, checkout, tmp_path / "clone") == tree(checkout)


def test_what_a_merge_has_left_unmerged_is_reproduced_as_it_is(
    store: Store, checkout: Path, tmp_path: Path
) -> None:
    for branch, content in (("side", b"theirs\n"), ("main", b"ours\n")):
        git(checkout, "checkout", "--quiet", *(["-b"] if branch == "side" else []), branch)
        write(checkout, "train.py", content)
        git(checkout, "commit", "--quiet", "--all", "--message=changed")
    assert (
        subprocess.run(
            ["git", "-C", str(checkout), "merge", "side"], capture_output=True, check=False
        ).returncode
        == 1
    )
    assert reproduce(store, checkout, tmp_path / "clone") == tree(checkout)


def test_a_repository_inside_the_checkout_is_listed_and_costs_no_other_change(
    store: Store, checkout: Path
) -> None:
    write(checkout, "train.py", b"changed\n")
    for name in ("empty", "committed"):
        write(checkout, f"vendor/{name}/file.py", b"not ours\n")
        git(checkout / "vendor" / name, "init", "--quiet")
    git(checkout / "vendor/committed", "add", ".")
    git(checkout / "vendor/committed", "commit", "--quiet", "--message=theirs")
    state = git_state(store, checkout)
    assert state is not None
    assert state["left_out"] == [
        {"path": "vendor/committed/", "bytes": 0},
        {"path": "vendor/empty/", "bytes": 0},
    ]
    patch = store.get_blob(state["patch"])
    assert b"+changed" in patch
    assert b"vendor" not in patch


@pytest.mark.parametrize("ignored", [True, False])
def test_a_store_inside_the_checkout_is_no_part_of_its_patch(checkout: Path, ignored: bool) -> None:
    if ignored:
        write(checkout, ".gitignore", b"*.log\n.halving/\n")
        git(checkout, "commit", "--quiet", "--all", "--message=ignore the store")
    store = Store(checkout / ".halving")
    store.put_blob(b"x" * 11_000_000)
    assert git_state(store, checkout) == {
        **(git_state(store, checkout) or {}),
        "dirty": False,
        "patch": None,
        "left_out": [],
    }
    write(checkout, "new.py", b"x = 1\n")
    state = git_state(store, checkout)
    assert state is not None
    assert state["dirty"] is True
    patch = store.get_blob(state["patch"]).decode()
    assert "new.py" in patch
    assert ".halving/" not in patch.replace(".gitignore", "")


def set_filter(checkout: Path, command: str) -> None:
    """Have git run ``command`` while it adds ``a.data``, before it comes to what is later in the alphabet."""
    git(checkout, "config", "filter.meddle.clean", f"{command}; cat")
    write(checkout, ".gitattributes", b"a.data filter=meddle\n")
    write(checkout, "a.data", b"1\n")


def test_a_file_that_goes_while_git_reads_does_not_make_the_tree_unknown(
    store: Store, checkout: Path
) -> None:
    write(checkout, "train.py", b"changed\n")
    write(checkout, "z.tmp", b"an editor's\n")
    set_filter(checkout, "rm -f z.tmp")
    state = git_state(store, checkout)
    assert state is not None
    assert (state["dirty"], state["error"]) == (True, None)
    patch = store.get_blob(state["patch"])
    assert b"+changed" in patch
    assert b"z.tmp" not in patch


def test_where_git_gives_up_each_time_it_is_said_why(store: Store, checkout: Path) -> None:
    git(checkout, "config", "filter.meddle.required", "true")
    set_filter(checkout, "exit 3")
    state = git_state(store, checkout)
    assert state is not None
    assert (state["dirty"], state["patch"]) == (None, None)
    assert state["error"].startswith("git update-index: error: external filter ")
    assert state["error"].endswith("; fatal: a.data: clean filter 'meddle' failed")


@pytest.mark.parametrize("ignored", [True, False])
@pytest.mark.parametrize("folder", [".", "package"])
def test_dagsters_home_of_one_command_is_no_part_of_the_patch(
    store: Store, checkout: Path, folder: str, ignored: bool
) -> None:
    if ignored:
        write(checkout, ".gitignore", b"*.log\n.tmp_dagster_home_*/\n")
        git(checkout, "commit", "--quiet", "--all", "--message=ignore Dagster's home")
    write(checkout, f"{folder}/.tmp_dagster_home_1a2b/history/runs.db", b"changes all the time")
    write(checkout, f"{folder}/.tmp_dagster_home_1a2b/storage/large", b"x" * 11_000_000)
    state = git_state(store, checkout)
    assert state is not None
    assert (state["dirty"], state["error"], state["left_out"]) == (False, None, [])


def test_a_patch_that_git_could_not_make_is_not_taken_for_a_clean_tree(checkout: Path) -> None:
    write(checkout, "train.py", b"changed\n")
    (checkout / ".git" / "index").write_bytes(b"damaged")
    state = git_state(Store(checkout.parent / "store"), checkout)
    assert state is not None
    assert (state["dirty"], state["patch"]) == (None, None)
    assert "index file smaller than expected" in state["error"]
