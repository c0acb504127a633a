"""A temporary folder goes with its process, and what a killed process left behind goes with the next one."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from halving import StoreError
from resources.features.engine import engine
from resources.temporary_folders import folder_of_user, temporary_folder

_KILLED = """
import os, signal
from resources.features.engine import engine

with engine("a join") as (connection, folder):
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


@pytest.mark.slow
def test_what_a_killed_process_spilled_is_deleted_by_the_next(disk: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    base = disk / f"halving-features-{os.getuid()}"
    (left,) = base.iterdir()
    assert (left / "spilled").exists()
    with engine("a join") as (_, folder):
        assert list(base.iterdir()) == [folder]
    assert list(base.iterdir()) == []


def test_a_folder_of_another_user_is_refused(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder_of_user("features").stat().st_mode & 0o777 == 0o700
    user = os.getuid()
    name = f"halving-features-{user + 1}"
    (disk / name).mkdir()
    monkeypatch.setattr(os, "getuid", lambda: user + 1)
    with pytest.raises(StoreError, match=f"the folder {disk}/{name} is another user's; delete it, or give another place .* by TMPDIR"):
        folder_of_user("features")
