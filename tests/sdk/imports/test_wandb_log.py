"""W&B's log format: LevelDB's chunks in blocks of 32 KiB, read without W&B."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving.errors import InvalidInput
from halving.imports.foreign_run import Skipped
from halving.imports.wandb_log import BLOCK, CHUNK, FIRST, HEADER, read_log
from tests.properties import examples
from tests.sdk.imports.wandb_files import chunk, ends_of, log_of

DAMAGED = "damaged parts of log files (up to 32 KiB each)"


def read(
    tmp_path: Path, content: bytes, start: int = 0, until: int | None = None
) -> tuple[list[bytes], Skipped]:
    path = tmp_path / "run-a.wandb"
    path.write_bytes(content)
    skipped = Skipped()
    return [record.data for record in read_log(path, skipped, start, until)], skipped


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


RECORDS = st.lists(
    st.integers(0, 3 * BLOCK).map(lambda size: bytes(value % 251 for value in range(size))), max_size=6
)


@given(RECORDS)
@settings(max_examples=examples(40), deadline=None)
def test_what_was_written_is_read(folder: Path, records: list[bytes]) -> None:
    assert read(folder, log_of(records)) == (records, Skipped())


@pytest.mark.parametrize("left", range(15))
def test_a_record_that_ends_near_its_blocks_end_loses_no_other(tmp_path: Path, left: int) -> None:
    first = b"x" * (BLOCK - HEADER.size - CHUNK.size - left)
    records = [first, b"second", b"third"]
    assert read(tmp_path, log_of(records)) == (records, Skipped())


def test_a_reading_begins_where_another_one_ended(tmp_path: Path) -> None:
    records = [b"a" * 40_000, b"", b"b", b"c" * 70_000, b"d"]
    content = log_of(records)
    for number, end in enumerate(ends_of(records), 1):
        assert read(tmp_path, content, start=end)[0] == records[number:]
        assert read(tmp_path, content, until=end)[0] == records[:number]


def test_a_file_cut_at_any_byte_gives_its_whole_records_and_no_error(tmp_path: Path) -> None:
    records = [b"a" * 30, b"b" * 5, b"", b"c" * 100]
    content = log_of(records)
    ends = ends_of(records)
    for size in range(len(content) + 1):
        whole = sum(end <= size for end in ends)
        assert read(tmp_path, content[:size]) == (records[:whole], Skipped()), size


def test_a_file_cut_around_a_blocks_end_gives_its_whole_records_and_no_error(tmp_path: Path) -> None:
    records = [b"a" * (BLOCK - 50), b"b" * 200, b"c" * BLOCK]
    content = log_of(records)
    ends = ends_of(records)
    for size in range(BLOCK - 60, BLOCK + 300):
        whole = sum(end <= size for end in ends)
        assert read(tmp_path, content[:size]) == (records[:whole], Skipped()), size


def test_zeros_at_the_end_are_no_damage(tmp_path: Path) -> None:
    records = [b"a" * 100, b"b"]
    assert read(tmp_path, log_of(records) + bytes(50_000)) == (records, Skipped())


def test_a_damaged_byte_costs_its_block_and_is_counted(tmp_path: Path) -> None:
    records = [bytes([number]) * 1_000 for number in range(200)]
    content = bytearray(log_of(records))
    ends = ends_of(records)
    at = BLOCK + 100  # in the first chunk of its block
    content[at] ^= 1
    got, skipped = read(tmp_path, bytes(content))
    before = [record for record, end in zip(records, ends, strict=True) if end <= BLOCK]
    after = [
        record
        for record, end in zip(records, ends, strict=True)
        if end - len(record) - CHUNK.size >= 2 * BLOCK
    ]
    assert got == before + after
    assert before
    assert after
    assert skipped.reasons[DAMAGED] == 1


def test_a_hole_of_zeros_in_the_middle_is_counted(tmp_path: Path) -> None:
    records = [bytes([number]) * 1_000 for number in range(1, 101)]
    content = bytearray(log_of(records))
    content[BLOCK : 2 * BLOCK] = bytes(BLOCK)
    got, skipped = read(tmp_path, bytes(content))
    assert set(got) < set(records)
    assert got[-1] == records[-1]
    assert skipped.reasons[DAMAGED] == 1


@given(st.data())
@settings(max_examples=examples(150), deadline=None)
def test_a_changed_byte_never_gives_a_record_that_was_not_written(folder: Path, data: st.DataObject) -> None:
    records = [bytes([number]) * (number * 37 % 900) for number in range(1, 120)]
    content = bytearray(log_of(records))
    at = data.draw(st.integers(HEADER.size, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    got, _ = read(folder, bytes(content))
    assert len(got) < len(records)
    rest = iter(records)
    assert all(record in rest for record in got)  # in their order


def test_a_record_without_its_end_is_counted_and_the_next_one_read(tmp_path: Path) -> None:
    content = log_of([]) + chunk(FIRST, b"begun") + chunk(1, b"whole")
    assert read(tmp_path, content) == ([b"whole"], Skipped({"records whose end is missing": 1}))  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b":W", b":W&B\xe1\xbe"])
def test_a_file_that_has_just_been_begun_has_no_records(tmp_path: Path, content: bytes) -> None:
    assert read(tmp_path, content) == ([], Skipped())


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04 a zip", b":W&B\xe1\xbe\x07rest of it", b":W&B\x00\x00\x00 rest"]
)
def test_another_header_is_refused_with_what_is_accepted(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"run-a\.wandb.*begins with.*:W&B"):
        read(tmp_path, content)
