"""Whatever days are made again and pushed, what is online is the latest that the days have."""

import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import Store
from halving.features import OnlineFeatures
from resources.features import withdrawn
from resources.features.materialize import materialize_day
from resources.features.online import delete, push
from resources.features.online_writer import Withdrawal
from resources.features.partitions import partitions
from resources.features.sqlite_writer import SqliteWriter
from resources.features.view import FeatureView
from tests.properties import examples
from tests.resources.features.histories import (
    SOURCE,
    START,
    Row,
    at,
    bits,
    histories,
    latest_known,
    materialize,
    table,
    view,
)

DAY = 1440.0
FIRST = date(2026, 3, 1)
SECOND = date(2026, 3, 2)


def value(online: str, user: int = 1) -> float | None:
    with OnlineFeatures(online, ["clicks@1:value"]) as reader:
        answer: float | None = reader.get({"user": user})["value"]
    return answer


def make(store: Store, shape: FeatureView, day: date, rows: Sequence[Row]) -> None:
    """Make a day of these rows, as far as they are of it."""
    SOURCE["rows"] = table(rows)
    materialize_day(store, shape, day, late=True)


def forget_older_files(store: Store) -> None:
    newest = {partition.name for partition in partitions(store, "clicks", 1)}
    for path in Path(store.root).rglob("*.parquet"):
        if path.relative_to(store.root).as_posix() not in newest:
            path.unlink()


@dataclass(frozen=True)
class Step:
    """Some days are made again of these rows.

    After that the files of before may be lost, a user may be deleted, and some days may be pushed.
    """

    rows: list[Row]
    days: set[int]
    lost: bool
    deleted: int | None
    pushed: set[int] | None


steps = st.builds(
    Step,
    histories(),
    st.sets(st.integers(0, 3)),
    st.booleans(),
    st.sampled_from([None, None, None, 3]),
    st.none() | st.sets(st.integers(0, 3)),
)


def replay(store: Store, online: str, history: Sequence[Step]) -> None:
    """Carry the steps out, push all, and compare what is online with the plainest code."""
    shape = view()
    rows_of = dict[int, list[Row]]()
    deleted = set[int]()
    make(store, shape, FIRST, [])
    push(store, shape, online)
    for step in history:
        for day in step.days:
            rows_of[day] = [row for row in step.rows if row.event // DAY == day]
            make(store, shape, at(day * DAY).date(), rows_of[day])
        if step.lost:
            forget_older_files(store)
        if step.deleted is not None:
            delete("clicks@1", {"user": step.deleted}, online)
            deleted.add(step.deleted)
        if step.pushed is not None:
            push(store, shape, online, days=[at(day * DAY).date() for day in step.pushed])
    push(store, shape, online)
    rows = [row for of_day in rows_of.values() for row in of_day]
    for user in range(1, 4):
        expected = None
        if user not in deleted:
            expected = latest_known(rows, user, math.inf)
        assert bits([value(online, user)]) == bits([expected]), user
    assert (push(store, shape, online).taken, push(store, shape, online).withdrawn) == (0, 0)


@settings(max_examples=examples(40))
@given(st.lists(steps, min_size=2, max_size=4), st.booleans())
def test_what_is_online_after_any_days_and_pushes_is_the_latest_offline(
    history: list[Step], settles: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if settles:
            patch.setattr(withdrawn, "UNDER_WAY", timedelta(0))
        replay(Store(f"{folder}/store"), f"{folder}/online.db", history)


@pytest.mark.parametrize("seed", range(3))
def test_either_online_store_has_the_latest_after_a_random_history(
    tmp_path: Path, online: str, seed: int
) -> None:
    source = random.Random(seed)

    def rows() -> list[Row]:
        drawn = {
            (source.randint(1, 3), source.randrange(0, 4320, 90), source.choice([0, 30, 1500]))
            for _ in range(16)
        }
        return [Row(user, event, event + late, source.random()) for user, event, late in sorted(drawn)]

    def days() -> set[int]:
        return set(source.sample(range(4), source.randint(1, 4)))

    history = [
        Step(rows(), days(), source.random() < 0.3, 3 if seed == 2 and number == 3 else None, days())
        for number in range(6)
    ]
    replay(Store(tmp_path / "store"), online, history)


def test_a_row_that_a_mended_day_has_no_more_is_gone_online(tmp_path: Path, online: str) -> None:
    store = Store(tmp_path / "store")
    users = range(20)
    shape = materialize(store, [Row(user, 10, 12, float(user)) for user in users])
    assert push(store, shape, online).taken == 20
    materialize(store, [Row(user, 10, 12, float(user)) for user in users if user % 2])
    pushed = push(store, shape, online)
    assert (pushed.entities, pushed.taken, pushed.withdrawn) == (10, 10, 10)
    assert [value(online, user) for user in users] == [float(user) if user % 2 else None for user in users]


def test_a_day_that_was_loaded_again_with_later_times_has_nothing_to_withdraw(
    tmp_path: Path, online: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    shape = materialize(store, [Row(user, 10, 12, float(user)) for user in range(20)])
    push(store, shape, online)
    materialize(store, [Row(user, 10, 50, float(user)) for user in range(1, 20)])
    looked_at: list[int] = []
    original = withdrawn._withdrawals

    def count(*arguments: Any) -> Iterator[list[Withdrawal]]:
        for rows in original(*arguments):
            looked_at.append(len(rows))
            yield rows

    monkeypatch.setattr(withdrawn, "_withdrawals", count)
    pushed = push(store, shape, online)
    assert (pushed.taken, pushed.withdrawn) == (19, 1)
    assert looked_at == [1], "the user that is gone: what was put of the others is newer"


@pytest.mark.parametrize("lost", [False, True], ids=["", "without the older file"])
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param([Row(1, 30, 32, 3.0)], 3.0, id="the row before"),
        pytest.param([Row(1, 30, 32, 3.0), Row(1, DAY + 20, DAY + 22, 2.5)], 2.5, id="an earlier event"),
        pytest.param([Row(1, 30, 32, 3.0), Row(1, DAY + 60, DAY + 61, 2.0)], 2.0, id="known earlier"),
        pytest.param([Row(1, 40, 42, 2.0)], 2.0, id="moved to the day before"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_what_was_known_before_takes_the_place_of_a_row_that_is_gone(
    tmp_path: Path, online: str, after: list[Row], expected: float | None, lost: bool
) -> None:
    store = Store(tmp_path / "store")
    shape = view()
    for rows in ([Row(1, 30, 32, 3.0), Row(1, DAY + 60, DAY + 62, 2.0)], after):
        for day in (FIRST, SECOND):
            make(store, shape, day, rows)
        if lost and rows is after:
            forget_older_files(store)
        push(store, shape, online)
    assert value(online) == expected


def test_what_was_deleted_does_not_come_back_when_a_later_row_is_withdrawn(
    tmp_path: Path, online: str
) -> None:
    store = Store(tmp_path / "store")
    shape = view()
    later = (datetime.now(UTC) - START).total_seconds() / 60 + 60
    day = at(later).date()
    make(store, shape, FIRST, [Row(1, 10, 12, 1.0)])
    push(store, shape, online)
    delete("clicks@1", {"user": 1}, online)
    make(store, shape, day, [Row(1, later, later, 2.0)])
    push(store, shape, online, until=at(later))
    assert value(online) == 2.0
    make(store, shape, day, [])
    assert push(store, shape, online, until=at(later)).withdrawn == 1
    assert value(online) is None
    assert push(store, shape, online, until=at(later)).taken == 0
    assert value(online) is None


@pytest.mark.parametrize("lost", [False, True], ids=["", "without the older file"])
def test_a_row_that_was_pushed_before_it_was_known_is_withdrawn_by_a_later_push(
    tmp_path: Path, online: str, lost: bool
) -> None:
    """The push was for a time that is yet to come; the row's day, today, is made again before that time."""
    store = Store(tmp_path / "store")
    shape = view()
    minute = (datetime.now(UTC) - START).total_seconds() / 60
    day = at(minute).date()
    make(store, shape, day, [Row(1, minute, minute + 60, 2.0)])
    push(store, shape, online, until=at(minute + 90))
    assert value(online) == 2.0
    make(store, shape, day, [])
    if lost:
        forget_older_files(store)
    assert push(store, shape, online).withdrawn == 1
    assert value(online) is None


def test_a_push_of_what_was_known_by_a_time_withdraws_nothing_that_was_known_later(
    tmp_path: Path, online: str
) -> None:
    store = Store(tmp_path / "store")
    shape = view()
    make(store, shape, FIRST, [Row(1, 10, 12, 1.0), Row(1, 20, 400, 2.0)])
    push(store, shape, online)
    make(store, shape, FIRST, [Row(1, 10, 12, 1.0)])
    assert push(store, shape, online, until=at(100)).withdrawn == 0
    assert value(online) == 2.0
    assert push(store, shape, online).withdrawn == 1
    assert value(online) == 1.0


def test_a_push_that_began_before_a_day_was_made_again_is_mended_by_the_next_one(
    tmp_path: Path, online: str
) -> None:
    store = Store(tmp_path / "store")
    shape = view()
    make(store, shape, FIRST, [])
    push(store, shape, online)
    make(store, shape, FIRST, [Row(1, 10, 12, 1.0)])
    slow = partitions(store, "clicks", 1)
    make(store, shape, FIRST, [Row(2, 10, 12, 1.0)])
    push(store, shape, online)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("resources.features.online.partitions", lambda *_: slow)
        push(store, shape, online)
    assert value(online) == 1.0
    assert push(store, shape, online).withdrawn == 1
    assert value(online) is None


def test_a_settled_day_is_not_looked_at_again(
    tmp_path: Path, online: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withdrawn, "UNDER_WAY", timedelta(0))
    store = Store(tmp_path / "store")
    shape = view()
    for number in range(3):
        make(store, shape, FIRST, [Row(number, 10, 12, 1.0)])
        push(store, shape, online)
    with monkeypatch.context() as patch:
        patch.setattr(withdrawn, "older_generations", None)
        push(store, shape, online)
    first = withdrawn.older_generations
    looked: list[int] = []
    monkeypatch.setattr(
        withdrawn,
        "older_generations",
        lambda store, day, number: looked.append(number) or first(store, day, number),
    )
    make(store, shape, FIRST, [Row(4, 10, 12, 1.0)])
    assert push(store, shape, online).withdrawn == 1
    assert looked == [3]


def test_a_push_that_is_killed_between_its_steps_is_finished_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withdrawn, "UNDER_WAY", timedelta(0))
    store = Store(tmp_path / "store")
    online = str(tmp_path / "online.db")
    shape = view()
    for rows in ([Row(1, 10, 12, 1.0), Row(2, 10, 12, 2.0)], [Row(2, 10, 12, 2.5)]):
        make(store, shape, FIRST, rows)
        for step in ("settle", "define", "put", "withdraw"):
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):  # not each push has each step
                patch.setattr(SqliteWriter, step, interrupted)
                push(store, shape, online)
        push(store, shape, online)
    assert [value(online, user) for user in (1, 2)] == [None, 2.5]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt
