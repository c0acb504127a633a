"""A quick run of each part, as ``python -m benchmarks PART --quick``, measures and loses nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import PARTS, main
from benchmarks.results import load
from tests.benchmarks.preloaded import EVERYTHING, METRICS, Preloaded

SERVED = {"outage", "objects", "decisions", "catalog", "shares", "driver", "dagster"}  # by S3 or Postgres
IN_A_BROWSER = {"page", "pages", "shared"}
ZERO = {"points lost", "lost points", "points twice", "twice", "missing", "different"}  # columns


def mark_part(part: str) -> object:
    return pytest.param(part, marks=[pytest.mark.service] if part in SERVED else [])


@pytest.fixture(scope="module")
def preloaded() -> Iterator[dict[bool, Preloaded]]:
    """The processes that parts are forked from, by whether the part needs a browser.

    The first part that needs one starts it.
    """
    both = {True: Preloaded(METRICS), False: Preloaded(EVERYTHING)}
    yield both
    for each in both.values():
        each.stop()


@pytest.mark.slow
@pytest.mark.parametrize("part", [mark_part(part) for part in PARTS if part != "cluster"])
def test_a_quick_run_of_a_part_measures_all_of_it_and_loses_nothing(
    part: str, preloaded: dict[bool, Preloaded], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")  # which is a process for each call
    preloaded[part in IN_A_BROWSER].replace(monkeypatch)
    page = tmp_path / "page.md"
    folder = tmp_path / "bench"
    assert main([part, "--quick", "--folder", str(folder), "--out", str(page)]) == 0, page.read_text()
    assert f"`python -m benchmarks {part}`" in page.read_text()
    kept = folder / "quick" / f"{part}.json"
    if not kept.exists():
        pytest.skip(next(line for line in page.read_text().splitlines() if "Not measured" in line))
    for table in load(kept).tables:
        assert table.rows
        for row in table.rows:
            cells = dict(zip(table.header, row, strict=True))
            assert {cells[name] for name in ZERO & cells.keys()} <= {"0"}
    assert list((folder / "work").iterdir()) == []
