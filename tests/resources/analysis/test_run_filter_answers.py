"""The database and the records answer every filter alike."""

import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import Store
from halving.query.run_filter import (
    And,
    Between,
    Comparison,
    Condition,
    Field,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Order,
    RunFilter,
    Value,
)
from halving.query.run_filter_match import match_runs
from halving.query.runs import RunInfo, list_runs
from resources.analysis.run_index import Refresher, select_names
from resources.catalog import Catalog
from tests.properties import examples
from tests.run_filters import write_runs

Fields = st.SearchStrategy[Field]
Values = st.SearchStrategy[Value]

# Fields that the runs have or lack, values that they have or nearly have.
TEXT_FIELDS = st.sampled_from(
    [
        *(
            Field("run", name)
            for name in ("project", "run", "status", "sweep", "dataset", "snapshot", "commit")
        ),
        *(Field("tags", name) for name in ("team", "fold", "none")),
    ]
)
NUMBER_FIELDS = st.sampled_from(
    [Field("run", name) for name in ("seconds", "epoch", "attempt", "seed", "trial")]
) | st.builds(
    Field,
    st.just("metrics"),
    st.sampled_from(["loss", "val/acc", "up", "back", "none"]),
    st.sampled_from(["last", "min", "max"]),
)
TIME_FIELDS = st.sampled_from([Field("run", "started"), Field("run", "ended")])
PARAMS = st.builds(
    Field,
    st.just("params"),
    st.sampled_from(
        [
            "lr",
            "depth",
            "augment",
            "optimizer",
            "optimizer/name",
            "optimizer/betas",
            "note",
            "my lr",
            "long",
            "nul",
            "none",
        ]
    ),
)
FIELDS = TEXT_FIELDS | NUMBER_FIELDS | TIME_FIELDS | PARAMS
TEXTS: Values = st.sampled_from(
    [
        "",
        "3",
        "10",
        "50%",
        "Adam",
        "Vision",
        "a",
        "ab",
        "adam",
        "auto",
        "b",
        "digits",
        "failed",
        "finished",
        "it's",
        "nlp x",
        "sgd",
        "true",
        "vision",
    ]
)
NUMBERS: Values = st.sampled_from(
    [-math.inf, 0.0, 1e-4, 1e-3, 0.2, 0.4, 0.5, 0.6, 0.7, 1.0, 2.5, 3.0, 5.0, 6.0, 7.0, 10.0, math.inf]
)
TIMES: Values = st.sampled_from(
    ["2024-11-01T00:00:00+00:00", "2024-11-10T00:00:30+00:00", "2024-11-15T12:00:00.000001+00:00"]
)
PATTERNS = st.text("aAdn%_5'\n", max_size=4) | st.sampled_from(["%a%", "V_SION", r"50\%", "[0.9,%"])


def conditions_of(
    fields: Fields, ordered: tuple[Values, ...], others: Values
) -> st.SearchStrategy[Condition]:
    """``ordered`` has a strategy for each type."""
    any_value = st.one_of(*ordered, others)
    return st.one_of(
        st.builds(Comparison, fields, st.sampled_from(["=", "!="]), any_value),
        st.builds(Comparison, fields, st.sampled_from(["<", "<=", ">", ">="]), st.one_of(*ordered)),
        *(st.builds(Between, fields, values, values) for values in ordered),
        st.builds(In, fields, st.lists(any_value, min_size=1, max_size=4).map(tuple)),
        st.builds(IsNull, fields),
    )


CONDITIONS = st.recursive(
    st.one_of(
        conditions_of(TEXT_FIELDS, (TEXTS,), TEXTS),
        conditions_of(NUMBER_FIELDS, (NUMBERS,), st.just(math.nan)),
        conditions_of(TIME_FIELDS, (TIMES,), TIMES),
        conditions_of(PARAMS, (TEXTS, NUMBERS), st.sampled_from([math.nan, True, False])),
        st.builds(Like, TEXT_FIELDS | PARAMS, PATTERNS),
    ),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
FILTERS = st.builds(
    RunFilter,
    st.none() | CONDITIONS,
    st.lists(st.builds(Order, FIELDS, st.booleans()), max_size=3).map(tuple),
    st.none() | st.integers(1, 4),
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return write_runs(Path(tmp_path_factory.mktemp("filtered")) / "store")


@pytest.fixture(scope="module")
def runs(store: Store) -> list[RunInfo]:
    return list_runs(store)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def run_index(
    request: pytest.FixtureRequest, store: Store, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Catalog]:
    """The runs' index, once on each database."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('run_index')}/catalog.db"
    else:
        url = request.getfixturevalue("postgres").database("answers")
    with closing(Catalog(url)) as catalog:
        Refresher(store, catalog).refresh()
        yield catalog


@settings(max_examples=examples(300), deadline=None)
@given(wanted=FILTERS)
def test_the_database_chooses_what_the_records_say_for_every_filter(
    store: Store, runs: list[RunInfo], run_index: Catalog, wanted: RunFilter
) -> None:
    with run_index.read() as session:
        chosen = [run for _, run in select_names(session, wanted)]
    assert chosen == [info.run for info in match_runs(store, runs, wanted)], str(wanted)
