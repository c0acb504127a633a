"""The appender writes every record, also on its fast path, and a full journal loses nothing else."""

from pathlib import Path
from typing import Any

import pytest

from halving.journal.appender import JournalFull
from halving.journal.format import Reading
from halving.journal.log_segment import LOG_SEGMENT_BYTES, log_segment_files
from tests.sdk.journal.journals import SMALL, appender, records


def test_the_fast_path_writes_the_keys_of_the_last_record_with_plain_numbers(tmp_path: Path) -> None:
    writing = appender(tmp_path)
    assert not writing.fast({"a": 1.0}, 0)  # nothing was logged yet
    writing.append(("a", "b"), (1.0, 2.0), 0, 0)
    before = writing.now()
    assert writing.fast({"b": 4, "a": True}, 1)
    writing.append(("c",), (5.0,), 2, 0)
    assert writing.fast({"c": float("inf")}, 3)
    read = records(Reading(writing.log_segments[0].memory, verify=True))
    assert [record[:3] for record in read] == [
        (("a", "b"), (1.0, 2.0), 0),
        (("a", "b"), (1.0, 4.0), 1),
        (("c",), (5.0,), 2),
        (("c",), (float("inf"),), 3),
    ]
    assert before <= read[1][3] <= read[3][3] <= writing.now()


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ({"a": 1.0}, 1),
        ({"a": 1.0, "b": 2.0, "c": 3.0}, 1),
        ({"a": 1.0, "c": 3.0}, 1),
        ({"a": 1.0, "b": "2"}, 1),
        ({"a": 1.0, "b": None}, 1),
        ({"a": 1.0, "b": 1 + 2j}, 1),
        ({"a": 1.0, "b": 2.0}, 1.5),
        ({"a": 1.0, "b": 2.0}, 2**63),
        ((1.0, 2.0), 1),
    ],
)
def test_the_fast_path_writes_nothing_of_any_other_call(tmp_path: Path, values: Any, step: Any) -> None:
    writing = appender(tmp_path)
    writing.append(("a", "b"), (1.0, 2.0), 0, 0)
    end = writing.log_segments[0].memory.tell()
    try:
        written = writing.fast(values, step)
    except Exception:  # noqa: BLE001  # any exception says the same as False
        written = False
    assert (written, writing.log_segments[0].memory.tell()) == (False, end)


def test_the_fast_path_writes_no_more_into_a_log_segment_that_is_full_or_closed(tmp_path: Path) -> None:
    writing = appender(tmp_path)
    writing.append(("a",), (0.0,), 0, 0)
    fast = writing.fast
    step = 0
    memory = writing.log_segments[0].memory
    while memory.tell() + 40 <= len(memory):
        step += 1
        assert fast({"a": 0.0}, step)
    with pytest.raises(ValueError, match="data out of range"):
        fast({"a": 0.0}, step + 1)
    writing.append(("a",), (0.0,), step + 1, 0)
    writing.close()
    assert not writing.fast({"a": 0.0}, -1)
    read = [
        record
        for number in (0, 1)
        for record in records(Reading(writing.log_segments[number].memory, verify=True))
    ]
    assert [record[2] for record in read] == list(range(step + 2))


def test_more_sets_of_keys_than_a_log_segment_defines_are_logged_key_by_key(tmp_path: Path) -> None:
    writing = appender(tmp_path, log_segment_bytes=LOG_SEGMENT_BYTES)
    for number in range(1_200):
        writing.append((f"k{number}", "shared"), (1.0, float(number)), number, 0)
    reading = Reading(writing.log_segments[0].memory, verify=True)
    read = [
        point
        for names, values, step, _ in records(reading)
        for point in zip(names, values, [step] * len(names), strict=True)
    ]
    assert sorted(read) == sorted(
        [(f"k{number}", 1.0, number) for number in range(1_200)]
        + [("shared", float(n), n) for n in range(1_200)]
    )


def test_a_record_with_too_many_keys_for_a_log_segment_is_logged_key_by_key(tmp_path: Path) -> None:
    writing = appender(tmp_path)
    names = tuple(f"a rather long name of a metric, number {number}" for number in range(2_000))
    writing.append(names, tuple(float(number) for number in range(2_000)), 7, 7)
    read = [
        record
        for number in sorted(writing.log_segments)
        for record in records(Reading(writing.log_segments[number].memory, verify=True))
    ]
    assert read == [((name,), (float(number),), 7, 7) for number, name in enumerate(names)]


def test_a_full_journal_says_so_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    writing = appender(tmp_path, max_bytes=2 * SMALL)
    count = 0
    try:
        while True:
            writing.append(("a",), (1.0,), count, 0)
            count += 1
    except JournalFull as error:
        assert "the journal holds" in str(error)  # noqa: PT017
    writing.log_segments.pop(0)
    writing.append(("a",), (1.0,), count, 0)
    assert len(log_segment_files(tmp_path)["main"]) == 3


def test_a_log_segment_made_ahead_takes_the_next_number(tmp_path: Path) -> None:
    writing = appender(tmp_path)
    written_steps = 0
    while len(writing.log_segments) < 4:
        writing.prepare()
        writing.append(("a",), (1.0,), written_steps, 0)
        written_steps += 1
    writing.close()
    assert [number for number, _ in log_segment_files(tmp_path)["main"]] == [0, 1, 2, 3]
    assert not list(tmp_path.glob("*.new"))
    read = [
        record
        for number in sorted(writing.log_segments)
        for record in records(Reading(writing.log_segments[number].memory, verify=True))
    ]
    assert [step for _, _, step, _ in read] == list(range(written_steps))


def test_the_clock_does_not_go_back_with_the_machines(tmp_path: Path, monkeypatch: Any) -> None:
    writing = appender(tmp_path)
    before = writing.now()
    monkeypatch.setattr("time.time_ns", lambda: before - 3_600 * 10**9)
    writing.follow_clock()
    assert writing.now() >= before
    monkeypatch.setattr("time.time_ns", lambda: before + 3_600 * 10**9)
    writing.follow_clock()
    assert writing.now() >= before + 3_600 * 10**9
