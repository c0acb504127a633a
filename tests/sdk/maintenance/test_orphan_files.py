"""What killed writers leave goes, and whatever somebody may still name stays."""

from datetime import timedelta

import pytest

from halving import Store
from halving.maintenance.orphan_files import (
    OrphanFile,
    delete_orphan_file,
    find_orphan_files,
    owner_of_orphan_file,
)
from halving.records.run_record import RunRecords, SavedCheckpoint
from tests.sdk.maintenance.times import in_days


def clear_orphans(store: Store, days: float, project: str | None = None) -> list[OrphanFile]:
    """What went so many days from now."""
    orphans = list(find_orphan_files(store, (), in_days(days), project))
    for orphan in orphans:
        delete_orphan_file(store, orphan, in_days(days))
    return orphans


@pytest.mark.parametrize(
    ("name", "days", "owner"),
    [
        ("runs/project=p/r/mail/0001/trial-000001.json", 31, ("p", "r")),
        ("runs/project=p/r/mail/0001/trial-000001.json", 29, None),
        ("runs/project=p/safe/mail/0001/trial-000001.json", 9999, None),
        ("runs/project=p/r/.claim-record.json-0a.1.2", 1.1, ("p", "r")),
        ("runs/project=p/r/artifacts/.claim-weights-0a.1.2", 0.9, None),
        ("metrics/project=p/run=r/.full.parquet.17.0123abcd", 1.1, ("p", "r")),
        ("metrics/project=p/run=r/.gitignore", 9999, None),
        ("steps/0f3e/plan/result.json", 366, ("", "0f3e")),
        ("steps/0f3e/plan/result.json", 364, None),
        ("runs/project=p/r/record.json", 9999, None),
        ("runs/project=p/mail/record.json", 9999, None),
    ],
)
def test_what_nobody_alive_can_want_is_left_over(
    name: str, days: float, owner: tuple[str, str] | None
) -> None:
    assert owner_of_orphan_file(name, timedelta(days=days), {("p", "safe")}) == owner


def test_leftovers_go_and_only_those_of_the_project(any_store: Store) -> None:
    RunRecords(any_store, "p", "r").add_checkpoint(SavedCheckpoint(1, 1, any_store.put_blob(b"content"), {}))
    kept = sorted(name for name, _, _ in any_store.files("runs"))
    left = ["runs/project=p/r/mail/0001/task.json", "steps/0f3e/plan/result.json"]
    for name in left:
        any_store.create(name, b"12345", sole=True)
    with any_store.filesystem.open_output_stream(
        any_store.path("runs/project=p/r/.claim-record.json-0a.1.2")
    ) as claim:
        claim.write(b"claim")
    assert clear_orphans(any_store, 0) == []
    assert all(any_store.exists(name) for name in left)
    assert [(orphan.project, orphan.run, orphan.bytes) for orphan in clear_orphans(any_store, 400, "p")] == [
        ("p", "r", 5)
    ] * 2
    assert [(orphan.project, orphan.run, orphan.bytes) for orphan in clear_orphans(any_store, 400)] == [
        ("", "0f3e", 5)
    ]
    assert sorted(name for folder in ("runs", "steps") for name, _, _ in any_store.files(folder)) == kept


def test_nothing_is_an_orphan_where_the_store_does_not_say_when_it_was_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create("runs/project=p/r/mail/0001/trial-000001.json", b"{}")
    monkeypatch.setattr(
        store, "files", lambda prefix: [(name, size, 0.0) for name, size, _ in Store.files(store, prefix)]
    )
    assert list(find_orphan_files(store, (), in_days(400))) == []


@pytest.mark.parametrize("folder", ["artifacts/sha256/ab", "datasets/points/0123456789abcdef", "reports"])
def test_temporary_files_of_killed_writers_go_wherever_they_are(store: Store, folder: str) -> None:
    store.create(f"{folder}/.data.arrow.17.0123abcd", b"half")
    store.create(f"{folder}/.gitignore", b"stays")
    clear_orphans(store, 1.1)
    assert [name.rpartition("/")[2] for name, _, _ in store.files(folder)] == [".gitignore"]


DAY = "features/clicks/1/day=2026-11-25"
A = "a" * 64
B = "b" * 64


def generation(digest: str) -> bytes:
    return b'{"generation": 1, "sha256": "%s"}' % digest.encode()


@pytest.mark.parametrize(
    ("files", "days", "orphans"),
    [
        ({f"{DAY}/{A}.parquet": b"rows", f"{DAY}/generation-000001.json": generation(A)}, 400, []),
        ({f"{DAY}/{A}.parquet": b"rows"}, 7.1, [f"{DAY}/{A}.parquet"]),
        ({f"{DAY}/{A}.parquet": b"rows"}, 6.9, []),
        (
            {
                f"{DAY}/{A}.parquet": b"rows",
                f"{DAY}/{B}.parquet": b"rows",
                f"{DAY}/generation-000001.json": generation(A),
            },
            7.1,
            [f"{DAY}/{B}.parquet"],
        ),
        (  # the day was mended and set back: older generations count when what is online is withdrawn
            {
                f"{DAY}/{A}.parquet": b"rows",
                f"{DAY}/{B}.parquet": b"rows",
                f"{DAY}/generation-000001.json": generation(A),
                f"{DAY}/generation-000002.json": generation(B),
                f"{DAY}/generation-000003.json": generation(A),
            },
            400,
            [],
        ),
        (
            {
                f"{DAY}/{A}.parquet": b"rows",
                "features/clicks/1/day=2026-11-26/generation-000001.json": generation(A),
            },
            7.1,
            [f"{DAY}/{A}.parquet"],
        ),
        (
            {
                f"{DAY}/{A}.parquet": b"rows",
                "features/clicks/2/day=2026-11-25/generation-000001.json": generation(A),
            },
            7.1,
            [f"{DAY}/{A}.parquet"],
        ),
        ({f"{DAY}/.{A}.parquet.17.0123abcd": b"half"}, 1.1, [f"{DAY}/.{A}.parquet.17.0123abcd"]),
        ({"features/online.db": b"an online store that somebody keeps here"}, 400, []),
        ({f"{DAY}/notes.parquet": b"somebody's own"}, 400, []),
        ({f"{DAY}/generation-000001.json": generation(A)}, 400, []),
    ],
)
def test_of_a_view_s_days_only_files_that_no_generation_names_go(
    store: Store, files: dict[str, bytes], days: float, orphans: list[str]
) -> None:
    for name, content in files.items():
        store.create(name, content, sole=True)
    assert list(find_orphan_files(store, (), in_days(days), "p")) == []
    assert [orphan.name for orphan in clear_orphans(store, days)] == orphans
    assert {name for name, _, _ in store.files("features")} == set(files) - set(orphans)


def test_generations_are_read_only_where_a_day_has_a_file_too_many(
    any_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for day in range(10, 20):
        any_store.create(f"features/clicks/1/day=2026-11-{day}/{A}.parquet", b"rows", sole=True)
        any_store.create(f"features/clicks/1/day=2026-11-{day}/generation-000001.json", generation(A))
    any_store.create(f"features/clicks/1/day=2026-11-15/{B}.parquet", b"rows", sole=True)
    names = []
    monkeypatch.setattr(any_store, "read", lambda name: names.append(name) or Store.read(any_store, name))
    orphans = clear_orphans(any_store, 8)
    assert [orphan.name for orphan in orphans] == [f"features/clicks/1/day=2026-11-15/{B}.parquet"]
    assert names == ["features/clicks/1/day=2026-11-15/generation-000001.json"]
