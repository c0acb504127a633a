"""Snapshots are tracked with DVC, one at a time."""

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from halving import NotFound, StoreError
from resources.backend import Backend
from resources.datasets import dvc_tracking
from resources.datasets.snapshots import take_snapshot
from tests.resources.datasets.specs import open_dataset, source


@pytest.mark.usefixtures("with_dvc")
def test_a_push_that_failed_is_made_up_for_by_the_next_sweep(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the remote should be")
    monkeypatch.setenv("HALVING_DVC_REMOTE", str(blocked))
    with pytest.raises(StoreError, match=f"DVC could not track .*check its remote .{blocked}"):
        take_snapshot(backend.store, backend.catalog, source())
    blocked.unlink()
    take_snapshot(backend.store, backend.catalog, source())
    assert [path for path in blocked.rglob("*") if path.is_file()]


@pytest.mark.slow
def test_two_first_sweeps_may_track_at_once_and_dvc_keeps_no_captured_stream(
    tmp_path: Path,
) -> None:
    folders = [tmp_path / "datasets" / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "a").write_text(folder.name)
    program = (
        "import io, logging, sys; from pathlib import Path; from resources.datasets.dvc_tracking import "
        "track\n"
        "own = sys.stdout, sys.stderr; sys.stdout = sys.stderr = captured = io.StringIO()\n"
        "try: track(Path(sys.argv[1]).parent, Path(sys.argv[1])); assert sys.stdout is sys.stderr is "
        "captured\n"
        "finally: sys.stdout, sys.stderr = own\n"
        "captured.close()\n"
        "logging.getLogger('dvc').warning('said later')"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", program, str(folder)], stderr=subprocess.PIPE, text=True)
        for folder in folders
    ]
    assert [(process.communicate()[1], process.returncode) for process in both] == [("said later\n", 0)] * 2
    assert all(Path(f"{folder}.dvc").exists() for folder in folders)


@pytest.mark.slow
@pytest.mark.usefixtures("with_dvc")
@pytest.mark.parametrize("released", [True, False])
def test_a_locked_project_is_waited_for_and_one_that_stays_locked_is_an_error(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, released: bool
) -> None:
    take_snapshot(backend.store, backend.catalog, source())
    monkeypatch.setattr(dvc_tracking, "_LOCK_SECONDS", {True: 60.0, False: 1.0}[released])
    project = Path(backend.store.path("datasets"))
    holder = (
        "import sys; from dvc.repo import Repo; lock = Repo(sys.argv[1]).lock; lock.lock(); print('held', "
        "flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(project)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holding:
        assert holding.stdout is not None
        assert holding.stdout.readline() == "held\n"
        done: list[None] = []
        tracking = threading.Thread(
            target=lambda: done.append(dvc_tracking.track(project, next((project / "points").glob("*/"))))
        )
        if released:
            tracking.start()
            holding.communicate()
            tracking.join()
            assert done == [None]
        else:
            with pytest.raises(StoreError, match="stays locked"):
                tracking.run()
            holding.kill()


@pytest.mark.slow
@pytest.mark.usefixtures("with_dvc")
def test_dvc_brings_a_lost_manifest_back_from_its_remote(backend: Backend) -> None:
    snapshot = take_snapshot(backend.store, backend.catalog, source())
    dataset = open_dataset(backend, snapshot)
    folder = Path(backend.store.path(dataset.folder))
    project = Path(backend.store.path("datasets"))
    before = dataset.read("train")
    shutil.rmtree(folder)
    shutil.rmtree(project / ".dvc" / "cache")
    with pytest.raises(NotFound, match="`dvc pull` in its datasets folder brings it back"):
        open_dataset(backend, snapshot).read("train")
    subprocess.run([sys.executable, "-m", "dvc", "pull", "-q"], cwd=project, check=True)
    assert open_dataset(backend, snapshot).read("train").equals(before)
