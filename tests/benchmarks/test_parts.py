"""A quick run of each part of the benchmarks, as ``python -m benchmarks PART --quick`` does: it measures and loses nothing."""

from pathlib import Path

import pytest

from benchmarks.__main__ import PARTS, main
from benchmarks.results import load

SERVED = {"outage", "objects", "decisions", "catalog", "driver", "dagster"}  # by S3 or Postgres
ZERO = {"points lost", "lost points", "points twice", "twice", "missing", "different"}  # columns


def marked(part: str) -> object:
    return pytest.param(part, marks=pytest.mark.service if part in SERVED else ())


@pytest.mark.slow
@pytest.mark.parametrize("part", [marked(part) for part in PARTS if part != "cluster"])
def test_a_quick_run_of_a_part_measures_all_of_it_and_loses_nothing(part: str, tmp_path: Path) -> None:
    page, folder = tmp_path / "page.md", tmp_path / "bench"
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
