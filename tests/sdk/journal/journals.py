"""Journals for tests: small log segments, what was logged, and what is read back."""

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from halving.journal.appender import Appender
from halving.journal.format import Block, Reading

Record = tuple[tuple[str, ...], tuple[float, ...], int, int]


SMALL = 1 << 15


keys = st.lists(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=6, unique=True
).map(tuple)


int64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def logs(draw: st.DrawFn) -> list[Record]:
    """Some calls of log(), of a few sets of keys in any order."""
    sets = draw(st.lists(keys, min_size=1, max_size=4))
    read = []
    for names in draw(st.lists(st.sampled_from(sets), max_size=60)):
        values = tuple(draw(st.floats(width=64)) for _ in names)
        read.append((names, values, draw(int64), draw(st.integers(0, 2**62))))
    return read


def appender(folder: Path, name: str = "main", **limits: Any) -> Appender:
    return Appender(
        folder,
        name,
        **{
            "max_bytes": 1 << 30,
            "log_segment_bytes": SMALL,
            "on_full": lambda: None,
            "on_refused": fail,
            **limits,
        },
    )


def fail(error: OSError) -> None:
    raise error


def records(reading: Reading) -> list[Record]:
    """All records of a log segment, read in bulk."""
    read = []
    for block in reading.blocks():
        if isinstance(block, Block):
            for whole, values in zip(
                block.rows.view("int64").tolist(), block.rows.view("float64").tolist(), strict=True
            ):
                read.append((block.keys, tuple(values[3:-1]), whole[1], whole[2]))
    return read


def same(read: list[Record], expected: list[Record]) -> bool:
    return repr(read) == repr(expected)  # NaN differs from itself
