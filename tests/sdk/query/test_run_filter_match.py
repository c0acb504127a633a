"""Which runs a filter chooses, by their records and points."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halving import Store
from halving.query import run_filter_match
from halving.query.curve_stats import read_extremes
from halving.query.run_filter import InvalidFilter
from halving.query.run_filter_match import match_runs
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import list_runs
from tests.run_filters import CASES, NOW, write_runs

pytestmark = pytest.mark.xdist_group("the records' answers to filters")  # the runs are written once


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_runs(Path(tmp_path_factory.mktemp("filtered")) / "store")


def choose(store: Store, text: str) -> list[str]:
    return [info.run for info in match_runs(store, list_runs(store), parse_filter(text, NOW))]


@pytest.mark.parametrize(("text", "runs"), CASES, ids=[text[:80] for text, _ in CASES])
def test_a_filter_chooses_runs_in_its_order(store: Store, text: str, runs: list[str]) -> None:
    assert choose(store, text) == runs


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("best(metrics.loss) < 1", 1),
        ("run = a and model = digits", 13),
        ("run = a or not stage is null", 16),
        ("order by run, stage", 15),
    ],
)
def test_what_only_the_catalog_knows_is_refused_and_who_answers_it_is_said(
    store: Store, text: str, column: int
) -> None:
    with pytest.raises(
        InvalidFilter, match="only the catalog knows it; the server and its page answer it"
    ) as caught:
        choose(store, text)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("status = finished and params.lr < 1 order by run", []),
        ("metrics.loss < 1", ["e"]),  # all others' last values are in their records
        ("metrics.loss < 1 and metrics.up is null and status = unfinished order by metrics.loss", ["e"]),
        ("metrics.loss < 1 and run = a", []),
        ("min(metrics.loss) < 1 and run in (a, b)", ["b", "a"]),
        ("run = a or min(metrics.loss) < 0.1 and metrics.loss is not null and project = digits", ["c", "b"]),
        ("project = digits order by min(metrics.loss), max(metrics.loss)", ["c", "b", "a"]),
        ("project = digits order by run limit 1", []),
    ],
)
def test_points_are_read_once_and_only_where_they_decide(
    store: Store, text: str, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    monkeypatch.setattr(
        run_filter_match,
        "read_extremes",
        lambda _, info, keys: reads.append(info.run) or read_extremes(store, info, keys),
    )
    choose(store, text)
    assert sorted(reads, reverse=True) == read


@given(st.text("aA%_\\\n.", max_size=8), st.text("aAb%_\\\n.", max_size=8))
def test_like_is_what_a_regular_expression_says(pattern: str, text: str) -> None:
    pattern = pattern.rstrip("\\")
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    expression = "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)
    assert run_filter_match.is_like(text, pattern) == bool(
        re.fullmatch(expression, text, re.DOTALL | re.IGNORECASE)
    )


def test_a_pattern_of_many_parts_takes_no_longer_than_it_has_parts() -> None:
    assert not run_filter_match.is_like("a" * 5_000, "%a" * 2_000 + "%b")
