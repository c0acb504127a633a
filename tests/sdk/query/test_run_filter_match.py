"""Which runs a filter chooses, by their records and points."""

from pathlib import Path

import pytest

from halving import Store
from halving.query.run_filter_match import match_runs
from halving.query.run_filter_parser import parse_filter
from halving.query.runs import list_runs
from tests.run_filters import CASES, NOW, write_runs


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_runs(Path(tmp_path_factory.mktemp("filtered")) / "store")


def chosen(store: Store, text: str) -> list[str]:
    return [info.run for info in match_runs(store, list_runs(store), parse_filter(text, NOW))]


@pytest.mark.parametrize(("text", "runs"), CASES, ids=[text for text, _ in CASES])
def test_a_filter_chooses_runs_in_its_order(store: Store, text: str, runs: list[str]) -> None:
    assert chosen(store, text) == runs
