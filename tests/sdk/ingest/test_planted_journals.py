"""Of a journal that another user planted or changed nothing is published, deleted or written."""

import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import halving
from halving import Store
from halving.ingest.metric_writer import MetricWriter
from halving.ingest.recovery import Recovered, recover
from halving.journal.appender import Appender
from halving.journal.directory import attempt_folders, create_folder, journal_home, release

SECRET = b"nobody's business\n"
OTHER_USER = 12345
_AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="gives a directory to another user, which only root may"
)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of the user outside of the journal."""
    path = tmp_path / "secret.txt"
    path.write_bytes(SECRET)
    return path


def attempt_folder(store: Store, attempt: int = 1) -> Path:
    return journal_home(store) / "project=p" / "run=r" / f"{attempt:04d}"


def plant(folder: Path, note: dict[str, Any] | None = None) -> None:
    """A journal as a killed process leaves it: one point, and perhaps a note."""
    folder.mkdir(parents=True)
    appender = Appender(
        folder,
        "main",
        max_bytes=1 << 20,
        log_segment_bytes=1 << 15,
        on_full=lambda: None,
        on_refused=pytest.fail,
    )
    appender.append(("a",), (1.0,), 1, 1_000_000)
    if note is not None:
        appender.note({"key": "sample", "kind": "text", "step": 1, "time": 1_000_000, **note})
    appender.close()


def read_published(store: Store) -> list[float]:
    folder = "metrics/project=p/run=r/live"
    return [
        value
        for name in store.names(folder)
        for value in pq.read_table(store.path(f"{folder}/{name}"))["value"].to_pylist()
    ]


def contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


# What a note names


@pytest.mark.parametrize(
    "name", ["{victim}", "../../../../../secret.txt", "media-main-000001/../../../../../../secret.txt"]
)
def test_a_note_that_names_a_file_outside_its_folder_publishes_and_deletes_none(
    store: Store, victim: Path, name: str
) -> None:
    folder = attempt_folder(store)
    plant(folder, {"file": name.format(victim=victim)})
    (folder / "media-main-000001").mkdir()
    assert recover(store) == [Recovered("p", "r", 1, 1, "recovered")]
    assert victim.read_bytes() == SECRET
    assert SECRET not in contents(Path(store.root))
    assert json.loads(store.read("runs/project=p/r/end-0001.json"))["dropped_points"] == 1


@pytest.mark.parametrize("name", ["main-000000.journal", "lock", "end.json", ".", "", None, 7])
def test_a_note_that_names_another_file_of_the_journal_publishes_nothing(store: Store, name: Any) -> None:
    plant(attempt_folder(store), {"file": name})
    assert recover(store) == [Recovered("p", "r", 1, 1, "recovered")]
    assert store.names("runs/project=p/r/media") == []
    assert read_published(store) == [1.0]


def test_a_note_that_names_a_link_or_a_pipe_neither_follows_it_nor_waits_for_it(
    store: Store, victim: Path
) -> None:
    for attempt in (1, 2):
        plant(attempt_folder(store, attempt), {"file": "media-main-000001.txt"})
    (attempt_folder(store) / "media-main-000001.txt").symlink_to(victim)
    os.mkfifo(attempt_folder(store, 2) / "media-main-000001.txt")
    assert [recovered.state for recovered in recover(store)] == ["recovered", "recovered"]
    assert store.names("runs/project=p/r/media") == []
    assert victim.read_bytes() == SECRET
    assert SECRET not in contents(Path(store.root))


def test_an_end_that_is_a_link_is_not_read(store: Store, tmp_path: Path) -> None:
    plant(folder := attempt_folder(store))
    (tmp_path / "private.json").write_text(
        '{"status": "finished", "token": "secret", "segments": 0, "points": 0, "summary": {}}'
    )
    (folder / "end.json").symlink_to(tmp_path / "private.json")
    recover(store)
    ended = json.loads(store.read("runs/project=p/r/end-0001.json"))
    assert (ended["status"], "token" in ended) == ("crashed", False)


def test_a_log_segment_that_is_a_link_is_not_drained(store: Store, tmp_path: Path) -> None:
    plant(tmp_path / "elsewhere")
    plant(folder := attempt_folder(store))
    (folder / "12345-000000.journal").symlink_to(tmp_path / "elsewhere" / "main-000000.journal")
    assert recover(store) == [Recovered("p", "r", 1, 1, "recovered")]
    assert (tmp_path / "elsewhere" / "main-000000.journal").exists()


# Whose directory it is


def _of_another_user(path: Path) -> None:
    os.chown(path, OTHER_USER, -1)


def _a_link(path: Path) -> None:
    path.rename(path.with_name("real"))
    path.symlink_to(path.with_name("real"))


CHANGES = [
    pytest.param(_of_another_user, "belongs to user 12345", marks=_AS_ROOT, id="another-user"),
    pytest.param(_a_link, "is a symbolic link", id="link"),
    pytest.param(lambda path: path.chmod(0o770), "can be written to by other users", id="group-writable"),
    pytest.param(lambda path: path.chmod(0o1777), "can be written to by other users", id="world-writable"),
]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, which every user may write to."""
    path = tmp_path / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


@pytest.fixture(params=["store", "HALVING_JOURNAL", "XDG_STATE_HOME", "temporary"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Store, Path, Path]:
    """A store, the place that was given for its journals, and their home in it."""
    local = Store(tmp_path / "store")
    remote = Store("s3://bucket/prefix")
    if request.param == "store":
        return local, tmp_path / "store", journal_home(local)
    if request.param == "temporary":
        return local, temporary, temporary / f"halving-{os.getuid()}" / journal_digest(local)
    monkeypatch.setenv(request.param, str(tmp_path / "given"))
    store = local if request.param == "HALVING_JOURNAL" else remote
    return store, tmp_path / "given", journal_home(store)


def journal_digest(store: Store) -> str:
    return hashlib.sha256(store.root.encode()).hexdigest()[:16]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_journals_in_a_directory_that_others_can_change_are_left_alone(
    place: tuple[Store, Path, Path], tmp_path: Path, victim: Path, change: Callable[[Path], None], reason: str
) -> None:
    store, base, home = place
    folder = home / "project=p" / "run=r" / "0001"
    for changed in [parent for parent in (folder, *folder.parents) if base in parent.parents]:
        plant(folder, {"file": str(victim)})
        assert attempt_folders(store) == [folder]
        change(changed)
        assert attempt_folders(store, "p", "r") == []
        with pytest.warns(UserWarning, match=f"{changed} {reason}.*HALVING_JOURNAL"):
            assert recover(store) == []
        assert (folder / "main-000000.journal").exists()
        assert victim.read_bytes() == SECRET
        shutil.rmtree(base)
        base.mkdir()


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_a_run_whose_journal_others_could_change_keeps_its_points_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None], reason: str
) -> None:
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "given"))
    store = Store(tmp_path / "store")
    journal_home(store).mkdir(parents=True)
    change(journal_home(store))
    with pytest.warns(
        UserWarning, match=f"cannot write the journal of run r .*{reason}.*points wait in memory"
    ) as caught:
        run = halving.init("p", id="r", root=store.root, system_metrics=None)
    assert len(caught) == 1
    run.log({"a": 1.0}, step=1)
    run.finish()
    assert list(journal_home(store).iterdir()) == []
    assert read_published(store) == [1.0]


@pytest.mark.parametrize(("change", "reason"), CHANGES)
def test_journals_go_to_the_temporary_folder_if_another_user_owns_their_place(
    tmp_path: Path, temporary: Path, change: Callable[[Path], None], reason: str
) -> None:
    store = Store(tmp_path / "store")
    journal_home(store).mkdir(parents=True)
    change(journal_home(store))
    with pytest.warns(
        UserWarning, match=f"the journal of run r is in {temporary}.*{journal_home(store)} {reason}"
    ) as caught:
        writer = MetricWriter(store, "p", "r", 1, delay=3600)
    assert len(caught) == 1
    assert writer.folder.is_relative_to(temporary)
    assert attempt_folders(store) == [writer.folder]
    assert list(journal_home(store).iterdir()) == []
    assert writer.close()
    writer.release()


def test_without_a_home_journals_of_an_object_store_go_to_the_temporary_folder(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("HOME", "XDG_STATE_HOME", "HALVING_JOURNAL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 987_654)  # as in a container that runs under any user id
    store = Store("s3://bucket/prefix")
    folder = create_folder(store, "p", "r", 1)
    assert folder.is_relative_to(temporary)
    assert attempt_folders(store) == [folder]
    release(folder, remove=True)


def test_every_directory_of_a_journal_is_for_its_user_alone_whatever_the_umask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALVING_JOURNAL", str(tmp_path / "given"))
    before = os.umask(0o002)
    try:
        writer = MetricWriter(Store(tmp_path / "store"), "p", "r", 1, delay=3600)
        writer.append({"a": 1.0}, 1, 0)
    finally:
        os.umask(before)
    paths = list((tmp_path / "given").rglob("*"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o700, 0o600}
    assert {writer.folder, *writer.folder.parents[:3]} <= {path for path in paths if path.is_dir()}
    assert writer.close()
    writer.release()
