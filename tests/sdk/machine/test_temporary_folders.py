"""A temporary folder goes with its process, and what a killed process left behind goes with the next one."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from halving import StoreError
from halving.machine.temporary_folders import folder_of_user, scratch_folder, temporary_folder

_KILLED = """
import os, signal
from halving.machine.temporary_folders import scratch_folder

with scratch_folder("join") as folder:
    (folder / "spilled").write_bytes(b"gigabytes")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary disk."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_a_folder_in_use_is_left_alone_and_goes_at_the_end(tmp_path: Path) -> None:
    with temporary_folder(tmp_path / "base") as first:
        (first / "file").touch()
        with temporary_folder(tmp_path / "base") as second:
            assert sorted((tmp_path / "base").iterdir()) == sorted([first, second])
        assert list((tmp_path / "base").iterdir()) == [first]
    assert list((tmp_path / "base").iterdir()) == []


def test_what_could_not_be_deleted_goes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def refused(path: Path, **options: Any) -> None:
        if path.name == "held":
            if not options.get("ignore_errors"):
                raise PermissionError("in use")
            return
        remove(path, **options)

    monkeypatch.setattr(shutil, "rmtree", refused)
    with temporary_folder(tmp_path) as first:
        (first / "held").mkdir()
        (first / "other").mkdir()
    assert sorted(path.name for path in first.iterdir()) == ["held", "lock"]
    monkeypatch.setattr(shutil, "rmtree", remove)
    with temporary_folder(tmp_path) as second:
        assert list(tmp_path.iterdir()) == [second]


def test_a_folder_that_another_program_has_deleted_is_no_error(tmp_path: Path) -> None:
    with temporary_folder(tmp_path) as folder:
        shutil.rmtree(folder)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_a_killed_process_spilled_is_deleted_by_the_next(disk: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    base = disk / f"halving-join-{os.getuid()}"
    (left,) = base.iterdir()
    assert (left / "spilled").exists()
    with scratch_folder("join") as folder:
        assert list(base.iterdir()) == [folder]
    assert list(base.iterdir()) == []


_KILLED_AT_THE_END = """
import os, pathlib, shutil, signal, sys
from halving.machine.temporary_folders import temporary_folder

with temporary_folder(pathlib.Path(sys.argv[1])) as folder:
    for number in range(5):
        (folder / f"spool-{number}").mkdir()
        (folder / f"spool-{number}" / "rows").write_bytes(b"rows")
    left, original = int(sys.argv[2]), shutil.rmtree

    def killed(*arguments, **named):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    shutil.rmtree = killed
"""

_FORKED = """
import os, pathlib, signal, sys, time
from halving.machine.temporary_folders import temporary_folder

with temporary_folder(pathlib.Path(sys.argv[1])) as folder:
    if not os.fork():
        os.kill(os.getppid(), signal.SIGKILL)
        print(os.getpid(), flush=True)
        time.sleep(600)
    signal.pause()
"""


@pytest.mark.slow
@pytest.mark.parametrize("calls", [1, 3, 6])
def test_a_process_killed_while_deleting_its_folder_leaves_the_rest_to_the_next(
    tmp_path: Path, calls: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _KILLED_AT_THE_END, str(tmp_path / "base"), str(calls)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(list((tmp_path / "base").iterdir())) == 1
    with temporary_folder(tmp_path / "base") as folder:
        assert list((tmp_path / "base").iterdir()) == [folder]


@pytest.mark.slow
def test_a_child_that_outlives_a_killed_process_does_not_keep_its_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _FORKED, str(tmp_path / "base")], stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None
        child = int(killed.stdout.readline())
        try:
            assert killed.wait() == -signal.SIGKILL
            with temporary_folder(tmp_path / "base") as folder:
                assert list((tmp_path / "base").iterdir()) == [folder]
        finally:
            os.kill(child, signal.SIGKILL)


def test_on_a_disk_without_locks_folders_are_made_and_go_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", flock)
    with temporary_folder(tmp_path / "base") as first, temporary_folder(tmp_path / "base") as second:
        assert sorted((tmp_path / "base").iterdir()) == sorted([first, second])
    assert list((tmp_path / "base").iterdir()) == []


def test_an_empty_folder_of_a_process_that_was_killed_at_its_beginning_goes(tmp_path: Path) -> None:
    (tmp_path / ".halving-making-killed").mkdir()
    with temporary_folder(tmp_path) as folder:
        assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_what_is_no_folder_of_this_user_alone_is_refused(disk: Path, kind: str) -> None:
    place = disk / f"halving-join-{os.getuid()}"
    if kind == "open to others":
        place.mkdir()
        place.chmod(0o777)
    elif kind == "a link":
        (disk / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(disk / "elsewhere")
    else:
        place.touch()
    with pytest.raises((StoreError, FileExistsError), match=str(place)):
        folder_of_user("join")


def test_a_folder_of_another_user_is_refused(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder_of_user("join").stat().st_mode & 0o777 == 0o700
    user = os.getuid()
    name = f"halving-join-{user + 1}"
    (disk / name).mkdir()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(
        StoreError,
        match=f"^{disk}/{name} is not accepted .* a folder of this user's .* give another place by TMPDIR",
    ):
        folder_of_user("join")
