"""Runs that are tagged, archived, deleted and restored, and the trash that is emptied."""

from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pytest

from halving import AlreadyExists, InvalidInput, NotFound, Store
from halving.metrics.segments import encode, live_folder, points_table, segment_name
from halving.query.run_filter_match import match_runs
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import list_runs, read_run
from halving.records.amendments import amend, newest_amendment, with_lifecycle
from halving.records.run_record import RunRecords
from halving.store.json_files import now
from resources.analysis.run_index import Refresher, select_page
from resources.analysis.run_index.rebuild import rebuild
from resources.backend import Backend
from resources.catalog import SweepRow, TrialRow, utcnow
from resources.retention import trash
from resources.retention.lifecycle import set_lifecycle, set_tags
from resources.retention.policy import parse_policy
from resources.retention.reached import needed_runs
from resources.retention.trash import Trashed, count_removed, remove_deleted
from tests.backends import add_version, snapshot_row

DAY = timedelta(days=1)


@pytest.fixture
def run(backend: Backend) -> str:
    """A run of project p that has ended, with points and an artifact."""
    return add_run(backend.store, "a")


def add_run(store: Store, run: str, project: str = "p") -> str:
    records = RunRecords(store, project, run)
    began = {"provenance": {}, "seed": None, "determinism": {}, "started": "2026-01-01T00:00:00+00:00"}
    records.start({"lr": 0.1}, {"tags": {"team": "vision"}}, 1, began)
    records.add_artifact("weights", store.put_blob(f"weights of {run}".encode()), 8)
    points = (np.zeros(1, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1))
    store.create(
        f"{live_folder(project, run)}/{segment_name(1, 0)}", encode(points_table(run, 1, ["loss"], *points))
    )
    records.end(1, {"status": "finished", "time": "2026-01-01T00:00:01+00:00", "summary": {}})
    return run


def change(backend: Backend, run: str, lifecycle: str, project: str = "p") -> bool:
    with backend.catalog.write() as session:
        return set_lifecycle(session, backend.store, project, run, lifecycle, actor="ada")  # type: ignore[arg-type]


def names_of_runs(backend: Backend, text: str = "") -> list[str]:
    """What the index and the records list alike."""
    with backend.catalog.read() as session:
        runs = [row["run"] for row in select_page(session, parse_filter(text)).runs]
    assert [
        info.run for info in match_runs(backend.store, list_runs(backend.store), parse_filter(text))
    ] == runs
    return runs


def files_of(store: Store, run: str) -> list[str]:
    return [
        name
        for area in ("runs", "metrics")
        for name, _, _ in store.files(area)
        if f"/{run}/" in name or f"={run}/" in name
    ]


def empty_trash(backend: Backend, *, days: float, after: float, dry_run: bool = False) -> list[Trashed]:
    """The trash is emptied ``after`` so many days by a policy of ``days``."""
    policy = parse_policy({"trash": {"days": days}}, "test")
    return list(
        remove_deleted(
            backend.store,
            backend.catalog,
            policy,
            dry_run=dry_run,
            now=datetime.now(UTC) + timedelta(days=after),
        )
    )


def test_archived_and_deleted_runs_are_listed_only_on_request_also_after_a_rebuild(
    backend: Backend,
) -> None:
    for run in ("a", "b", "c"):
        add_run(backend.store, run)
    Refresher(backend.store, backend.catalog).refresh()
    assert change(backend, "a", "archived")
    assert change(backend, "b", "deleted")
    for _ in range(2):
        assert names_of_runs(backend) == ["c"]
        assert names_of_runs(backend, "status = finished") == ["c"]
        assert names_of_runs(backend, "lifecycle = deleted") == ["b"]
        assert names_of_runs(backend, "lifecycle in (archived, deleted) order by run") == ["a", "b"]
        rebuild(backend.store, backend.catalog)
    assert change(backend, "b", "active")
    assert not change(backend, "b", "active")
    assert sorted(names_of_runs(backend)) == ["b", "c"]


def test_a_run_that_goes_on_is_neither_archived_nor_deleted_any_more(backend: Backend, run: str) -> None:
    change(backend, run, "deleted")
    RunRecords(backend.store, "p", run).start(
        {"lr": 0.1}, {}, 2, {"provenance": {}, "started": (datetime.now(UTC) + DAY).isoformat()}
    )
    assert read_run(backend.store, "p", run).lifecycle == "active"
    (kept,) = empty_trash(backend, days=1, after=9)
    assert (kept.became, kept.reason) == ("stays", "it has gone on since it was deleted")


def test_tags_are_set_and_taken_away_beside_those_that_the_run_began_with(backend: Backend, run: str) -> None:
    def tag(**tags: str | None) -> dict[str, str]:
        with backend.catalog.write() as session:
            return set_tags(session, backend.store, "p", run, tags, actor="ada")

    assert tag(paper="fig 3") == {"team": "vision", "paper": "fig 3"}
    change(backend, run, "archived")
    assert tag(team=None) == {"paper": "fig 3"}
    info = read_run(backend.store, "p", run)
    assert (info.tags, info.lifecycle) == ({"paper": "fig 3"}, "archived")
    with pytest.raises(InvalidInput, match="tag '' is not accepted"), backend.catalog.write() as session:
        set_tags(session, backend.store, "p", run, {"": "x"}, actor="ada")


def test_of_two_who_amend_a_run_at_once_neither_is_lost(any_store: Store) -> None:
    folder = f"runs/project=p/{add_run(any_store, 'a')}"

    def second(before: dict[str, object]) -> dict[str, object]:
        if "first" not in before:  # somebody is first, between what was read and what is written
            amend(any_store, folder, lambda newest: {**newest, "first": True})
        return {**before, "second": True}

    assert amend(any_store, folder, second) == {"first": True, "second": True}
    assert newest_amendment(any_store, folder, any_store.names(folder)) == {"first": True, "second": True}


def test_what_is_needed_is_not_deleted_and_the_message_says_why(backend: Backend) -> None:
    with backend.catalog.write() as session:
        session.add(snapshot_row("sha256:s"))
        session.flush()
        for sweep, status in (("s-1", "finished"), ("s-2", "searching")):
            about = {
                "name": "p",
                "spec": {},
                "spec_digest": sweep,
                "snapshot": "sha256:s",
                "driver": "job",
                "ordinal": 0,
            }
            session.add(SweepRow(id=sweep, status=status, created_at=utcnow(), **about))
            session.flush()
            session.add(TrialRow(sweep=sweep, number=0, params={}, status="completed"))
        add_version(session, model="p", version="1.0.0", stage="champion", run="s-1.0000")
    add_run(backend.store, "s-1.0000")
    add_run(backend.store, "s-2.0000")
    with pytest.raises(
        InvalidInput,
        match=r"s-1\.0000 is not deleted: it is what model p 1\.0\.0 was made of, which is champion",
    ):
        change(backend, "s-1.0000", "deleted")
    with pytest.raises(
        InvalidInput, match=r"s-2\.0000 is not deleted: it is a trial of the sweep s-2, which is searching"
    ):
        change(backend, "s-2.0000", "deleted")
    assert change(backend, "s-2.0000", "archived")
    with pytest.raises(NotFound, match="no run 'none'"):
        change(backend, "none", "deleted")


def test_an_archived_version_keeps_its_run_only_where_it_has_no_checkpoint(
    backend: Backend, run: str
) -> None:
    add_run(backend.store, "b")
    with backend.catalog.write() as session:
        add_version(session, model="p", version="1", stage="archived", run=run)  # a client's
        add_version(
            session,
            model="p",
            version="1.0.0",
            stage="archived",
            run="b",
            checkpoint=backend.store.put_blob(b"winner"),
        )
    with pytest.raises(
        InvalidInput, match=r"model p 1 was made of, which is archived: .*delete the version first"
    ):
        change(backend, run, "deleted")
    assert change(backend, "b", "deleted")
    with backend.catalog.read() as session:
        assert "delete the version first" in str(needed_runs(session, "p"))


def test_a_run_that_is_needed_again_stays_in_the_trash(backend: Backend, run: str) -> None:
    change(backend, run, "deleted")
    with backend.catalog.write() as session:
        add_version(session, model="p", version="1.0.0", stage="staging", run=run)
    (kept,) = empty_trash(backend, days=30, after=31)
    assert kept.became == "stays"
    assert "which is staging" in str(kept.reason)
    assert change(backend, run, "active")


def test_a_deleted_run_is_removed_with_its_own_files_only_when_its_days_are_over(
    backend: Backend, run: str
) -> None:
    store = backend.store
    catalog = backend.catalog
    add_run(store, "b")
    others = files_of(store, "b")
    Refresher(store, catalog).refresh()
    change(backend, run, "deleted")
    assert empty_trash(backend, days=30, after=29) == []
    (due,) = empty_trash(backend, days=30, after=31, dry_run=True)
    assert (due.run, due.became) == (run, "would be removed")
    assert due.bytes > 0
    assert files_of(store, run)
    (gone,) = empty_trash(backend, days=30, after=31)
    assert gone.became == "removed"
    assert files_of(store, run) == []
    assert files_of(store, "b") == others
    assert [info.run for info in list_runs(store)] == ["b"]
    assert names_of_runs(backend, "lifecycle in (active, deleted, removed)") == ["b"]
    assert empty_trash(backend, days=0, after=31) == []


def test_nothing_is_left_of_a_removed_run_also_on_s3(backend: Backend, any_store: Store) -> None:
    add_run(any_store, "a")
    add_run(any_store, "b")
    with backend.catalog.write() as session:
        set_lifecycle(session, any_store, "p", "a", "deleted", actor="ada")
    policy = parse_policy({"trash": {"days": 1}}, "test")
    (gone,) = count_removed(
        remove_deleted(any_store, backend.catalog, policy, now=datetime.now(UTC) + 2 * DAY)
    )
    assert gone.count == 1
    assert (any_store.names("runs/project=p"), any_store.names("metrics/project=p")) == (["b"], ["run=b"])


def test_whoever_is_killed_while_a_run_is_removed_leaves_the_rest_to_the_next_one(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = len(files_of(backend.store, add_run(backend.store, "probe")))
    deletion = Store.delete
    for survives in range(total + 2):  # how many files are deleted before the kill
        run = add_run(backend.store, f"r{survives}")
        change(backend, run, "deleted")
        left = survives

        def delete(store: Store, name: str) -> None:
            nonlocal left
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
            deletion(store, name)

        with monkeypatch.context() as patch:
            patch.setattr(trash, "in_threads", lambda function, items: [function(item) for item in items])
            patch.setattr(Store, "delete", delete)
            try:
                empty_trash(backend, days=1, after=2)
            except KeyboardInterrupt:
                with pytest.raises((InvalidInput, NotFound)):  # half a run is not brought back
                    change(backend, run, "active")
        empty_trash(backend, days=1, after=2)
        assert files_of(backend.store, run) == []


def test_the_folder_of_a_killed_removal_goes_later_and_that_of_a_new_run_stays(
    backend: Backend, any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_run(any_store, "a")
    with backend.catalog.write() as session:
        set_lifecycle(session, any_store, "p", "a", "deleted", actor="ada")
    policy = parse_policy({"trash": {"days": 0}}, "test")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(trash, "_delete_empty_folder", die)
        with pytest.raises(KeyboardInterrupt):
            list(remove_deleted(any_store, backend.catalog, policy))
    assert list(any_store.files("runs")) == []
    if any_store.folder is not None:
        (any_store.folder / "runs/project=p/a/artifacts").mkdir()  # a folder in it is not deleted either
        list(remove_deleted(any_store, backend.catalog, policy))
        assert any_store.names("runs/project=p") == ["a"]
    list(remove_deleted(any_store, backend.catalog, policy, now=datetime.now(UTC) + 2 * DAY))
    assert any_store.names("runs/project=p") == []


def test_a_restore_in_the_moment_of_the_removal_is_first_or_refused(
    backend: Backend, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(backend, run, "deleted")
    monkeypatch.setattr(
        trash,
        "_why_needed",
        lambda *_: (
            amend(backend.store, f"runs/project=p/{run}", lambda now: with_lifecycle(now, "active", "b"))
            and None
        ),
    )
    (kept,) = empty_trash(backend, days=1, after=2)
    assert kept == Trashed("p", run, kept.deleted_at, kept.bytes, "stays", "it has just been restored")
    assert read_run(backend.store, "p", run).lifecycle == "active"


def test_removed_runs_are_counted_by_project_and_a_project_may_keep_them_longer(
    backend: Backend,
) -> None:
    for project in ("p", "q", "r"):
        add_run(backend.store, "a", project)
        change(backend, "a", "deleted", project)
    policy = parse_policy({"trash": {"days": 3}, "projects": {"q": {"trash": {"days": 30}}}}, "test")
    gone = count_removed(
        remove_deleted(backend.store, backend.catalog, policy, now=datetime.now(UTC) + 9 * DAY)
    )
    assert [(row.project, row.kind, row.count) for row in gone] == [
        ("p", "deleted runs", 1),
        ("r", "deleted runs", 1),
    ]
    assert [info.project for info in list_runs(backend.store)] == ["q"]


def test_a_removed_run_is_not_begun_again(backend: Backend, run: str) -> None:
    folder = f"runs/project=p/{run}"
    amend(backend.store, folder, lambda _: {"lifecycle": "removed", "since": now(), "by": "retention"})
    with pytest.raises(Exception, match="its files are being removed"):
        RunRecords(backend.store, "p", run).start({"lr": 0.1}, {}, 2, {})


def test_a_run_of_the_same_id_begins_only_after_the_removal_and_then_stays(
    backend: Backend, any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_run(any_store, "a")
    with backend.catalog.write() as session:
        set_lifecycle(session, any_store, "p", "a", "deleted", actor="ada")
    policy = parse_policy({"trash": {"days": 1}}, "test")
    deletion = Store.delete
    began = list[int]()

    def begin() -> int:
        return RunRecords(any_store, "p", "a").start({"lr": 0.2}, {}, None, {"started": now()})

    def die_before(store: Store, name: str) -> None:
        deletion(store, name)
        if name.endswith("/record.json"):
            raise KeyboardInterrupt

    def beside(store: Store, name: str) -> None:
        deletion(store, name)
        if "/amend-" in name:  # the last file
            began.append(begin())

    remove = partial(remove_deleted, any_store, backend.catalog, policy, now=datetime.now(UTC) + 2 * DAY)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", die_before)
        with pytest.raises(KeyboardInterrupt):
            list(remove())
    with pytest.raises(AlreadyExists, match="its files are being removed"):
        begin()
    monkeypatch.setattr(Store, "delete", beside)
    list(remove())
    assert began == [1]
    assert RunRecords(any_store, "p", "a").read()["params"] == {"lr": 0.2}
