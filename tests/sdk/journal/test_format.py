"""The journal's format: what was written is read back, and of a damaged log segment a clean prefix."""

from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halving.journal.format import Block, Reading
from halving.journal.log_segment import log_segment_files, map_log_segment
from halving.journal.tail import reading_of
from tests.properties import examples
from tests.sdk.journal.journals import SMALL, Record, appender, logs, records, same


def write_log(folder: Path, log: list[Record]) -> list[Record]:
    writing = appender(folder)
    for record in log:
        writing.append(*record)
    return [
        record
        for number, path in log_segment_files(folder).get("main", [])
        for record in records(Reading(map_log_segment(path), verify=True))
    ]


anywhere = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=examples(60),
)


@anywhere
@given(log=logs())
def test_what_was_logged_is_read_back_in_order_with_or_without_checking(
    log: list[Record], tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    writing = appender(folder)
    for record in log:
        writing.append(*record)
    for verify in (False, True):
        read = [
            record
            for number in sorted(writing.log_segments)
            for record in records(Reading(writing.log_segments[number].memory, verify=verify))
        ]
        assert same(read, log)


@anywhere
@given(log=logs(), data=st.data())
def test_a_log_segment_cut_at_any_byte_gives_the_records_that_were_whole(
    log: list[Record], data: st.DataObject, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    assert same(write_log(folder, log), log)
    if not log:
        return
    path = folder / "main-000000.journal"
    content = path.read_bytes()
    end = len(content.rstrip(b"\0"))
    cut = data.draw(st.integers(0, end))
    path.write_bytes(content[:cut] + bytes(len(content) - cut))
    reading = reading_of(path)
    read = records(reading) if reading else []
    assert same(read, log[: len(read)])
    whole = [start for start in ends_of(content) if start <= cut]
    assert len(read) >= len(whole)  # a record whose last bytes are zeros is whole a little earlier


def ends_of(content: bytes) -> list[int]:
    """Where each record of points ends, by a plain loop over the format."""
    ends = []
    offset = 16
    while length := int.from_bytes(content[offset : offset + 4], "little"):
        if int.from_bytes(content[offset + 4 : offset + 8], "little") >= 2:
            ends.append(offset + length)
        offset += length
    return ends


@anywhere
@given(log=logs().filter(bool), data=st.data())
def test_a_flipped_bit_ends_reading_at_its_record_and_gives_no_wrong_value(
    log: list[Record], data: st.DataObject, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    write_log(folder, log)
    path = folder / "main-000000.journal"
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(16, len(bytes(content).rstrip(b"\0")) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(content)
    read = records(Reading(map_log_segment(path), verify=True))
    assert same(read, log[: len(read)])
    assert len(read) < len(log)


def test_a_file_of_zeros_as_a_dead_machine_leaves_it_is_no_log_segment(tmp_path: Path) -> None:
    (tmp_path / "main-000000.journal").write_bytes(bytes(SMALL))
    assert reading_of(tmp_path / "main-000000.journal") is None


def test_many_records_span_log_segments_and_the_definitions_go_along(tmp_path: Path) -> None:
    log = [
        ((("a", "b"), (float(step), -float(step)), step, step) if step % 3 else (("c",), (0.5,), step, step))
        for step in range(3_000)
    ]
    assert write_log(tmp_path, log) == log
    assert len(log_segment_files(tmp_path)["main"]) > 3


def test_notes_stand_between_records_with_their_place(tmp_path: Path) -> None:
    writing = appender(tmp_path)
    writing.append(("a",), (1.0,), 1, 1)
    writing.note({"key": "sample", "text": "ü"})
    writing.append(("a",), (2.0,), 2, 2)
    read = list(Reading(writing.log_segments[0].memory, verify=True).blocks())
    assert [type(part) for part in read] == [Block, dict, Block]
    assert read[1].items() >= {"key": "sample", "text": "ü"}.items()  # type: ignore[union-attr]
