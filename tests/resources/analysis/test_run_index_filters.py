"""The index chooses the runs that a filter means, on each database."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from halving import Store
from halving.query.run_filter_parser import parse_filter
from resources.analysis.run_index import Refresher, select_names, select_page
from resources.catalog import Catalog
from tests.run_filters import CASES, NOW, write_runs

# the runs are written and indexed once
pytestmark = pytest.mark.xdist_group("the index's answers to filters")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_runs(Path(tmp_path_factory.mktemp("filtered")) / "store")


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def run_index(
    request: pytest.FixtureRequest, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalog]:
    """The runs' index, once on each database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('run_index')}/catalog.db"
    else:
        url = request.getfixturevalue("postgres").database("filtered")
    with closing(Catalog(url)) as catalog:
        Refresher(store, catalog).refresh()
        yield catalog


@pytest.mark.parametrize(("text", "runs"), CASES, ids=[text[:80] for text, _ in CASES])
def test_a_filter_chooses_runs_in_its_order(run_index: Catalog, text: str, runs: list[str]) -> None:
    chosen = parse_filter(text, NOW)
    with run_index.read() as session:
        assert [run for _, run in select_names(session, chosen)] == runs
        page = select_page(session, chosen, limit=2, offset=1)
    assert page.total == len(runs)
    assert [run["run"] for run in page.runs] == runs[1:3]
