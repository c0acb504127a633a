"""SQL over the store, and the leaderboard: the same points as curves have, records beside them, and nothing
but the store in reach.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from halving import InvalidInput, NotFound, Store, Text, init
from halving.metrics.manifest import publish_manifest, read_manifest
from halving.query.api import best, curves, last, leaderboard, sql
from halving.query.curve_table import as_text
from tests.sdk.query.histories import (
    FORMS,
    Logged,
    histories,
    put_record,
    put_segment,
    rows,
    same,
    slow,
    stitch_expected,
    store_of,
)


@pytest.fixture
def store(any_store: Store) -> Store:
    """Everything here holds for every kind of store."""
    return any_store


@pytest.mark.parametrize("form", FORMS)
@slow
@given(history=histories())
def test_the_views_of_points_have_what_was_logged(
    form: str, history: list[tuple[int, Logged]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = store_of(tmp_path_factory.mktemp("q"), history, form)
    where = "WHERE project = 'p' AND run = 'r' AND key = 'm'"
    table = sql(f"SELECT * FROM metrics {where} ORDER BY step", root=store)
    assert table.column_names == ["project", "run", "key", "step", "wall_time", "value"]
    assert same(rows(table), stitch_expected(history))
    assert sql(f"SELECT count(*) n FROM points {where}", root=store)["n"].to_pylist() == [
        sum(len(points) for _, points in history)
    ]
    assert sql("SELECT count(*) n FROM metrics WHERE run = 'other' AND key = 'm'", root=store)[
        "n"
    ].to_pylist() == [300]


def start_run(store: Store, name: str, value: float, **params: object) -> None:
    run = init(
        project="p", config=params, id=name, root=store.root, seed=3, tags={"team": "a"}, system_metrics=None
    )
    run.log({"loss": value + 1}, step=1)
    run.log({"loss": value}, step=2)
    run.log({"loss": value + 2, "note": Text("hello")}, step=3)
    run.finish()


def test_runs_params_and_media_are_tables(store: Store) -> None:
    start_run(store, "a", 1.0, lr=0.1, net={"kind": "mlp", "sizes": [8, 8]}, warm=True, none=None)
    (run,) = sql("SELECT * FROM runs", root=store).to_pylist()
    assert (run["project"], run["run"], run["status"], run["attempts"], run["seed"]) == (
        "p",
        "a",
        "finished",
        1,
        3,
    )
    assert json.loads(run["tags"]) == {"team": "a"}
    assert run["started"] <= run["ended"]
    params = {
        row["name"]: (row["value"], row["number"])
        for row in sql("SELECT * FROM params", root=store).to_pylist()
    }
    assert params == {
        "lr": ("0.1", 0.1),
        "net/kind": ("mlp", None),
        "net/sizes": ("[8, 8]", None),
        "warm": ("true", None),
        "none": (None, None),
    }
    (media,) = sql("SELECT key, step, kind, bytes, digest FROM media", root=store).to_pylist()
    assert (media["key"], media["step"], media["kind"]) == ("note", 3, "text")
    assert len(store.get_blob(media["digest"])) == media["bytes"]
    joined = sql(
        (
            "SELECT min(m.value) AS best FROM metrics m JOIN params USING (project, run) WHERE name = 'lr' "
            "AND "
            "number < 0.5"
        ),
        root=store,
    )
    assert joined["best"].to_pylist() == [1.0]


def test_a_run_that_trains_is_in_the_views_up_to_its_latest_log(store: Store) -> None:
    run = init(project="p", id="live", root=store.root, system_metrics=None)
    try:
        run.log({"loss": 1.0}, step=1)
        assert run.flush()
        run.log({"loss": 2.0}, step=1)
        run.log({"loss": 3.0}, step=2)
        assert sql("SELECT value FROM metrics ORDER BY step", root=store)["value"].to_pylist() == [2.0, 3.0]
        assert sql("SELECT value FROM points ORDER BY value", root=store)["value"].to_pylist() == [
            1.0,
            2.0,
            3.0,
        ]
        assert sql("SELECT status FROM runs", root=store)["status"].to_pylist() == ["running"]
    finally:
        run.finish()


def test_an_empty_store_has_empty_views(store: Store) -> None:
    for view in ("metrics", "points", "runs", "params", "media"):
        assert len(sql(f"SELECT * FROM {view}", root=store)) == 0


def test_a_key_that_looks_like_sql_is_only_a_key(tmp_path: Path) -> None:
    store = Store(tmp_path / "it's a 'store'")
    key = "loss'; DROP VIEW metrics; --"
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {key: [(1, 1, 4.0)]})
    assert curves("r", key, project="p", root=store)["value"].to_pylist() == [4.0]
    assert sql("SELECT key, value FROM metrics", root=store).to_pylist() == [{"key": key, "value": 4.0}]


@pytest.mark.folder
def test_a_store_by_its_address_has_the_same_views(store: Store) -> None:
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {"m": [(1, 1, 4.0)]})
    assert sql("SELECT value FROM metrics", root=f"file://{store.folder}")["value"].to_pylist() == [4.0]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT 1; SELECT 2", "give one SELECT"),
        ("COPY (SELECT 1) TO '{store}/x'", "give one SELECT"),
        ("DROP VIEW metrics", "give one SELECT"),
        ("INSERT INTO runs SELECT * FROM runs", "give one SELECT"),
        ("SET enable_external_access = true", "give one SELECT"),
        ("", "give one SELECT"),
        ("SELECT * FROM nothing", "nothing does not exist"),
        ("SELEC", "syntax error"),
        ("SELECT * FROM read_text('/etc/hostname')", "Permission"),
        ("SELECT * FROM store", "store does not exist"),  # a variable of ours is no table
    ],
)
def test_a_question_that_is_none_is_refused_and_changes_nothing(
    store: Store, query: str, message: str
) -> None:
    put_record(store, "r")
    put_segment(store, "r", 1, 0, {"m": [(1, 1, 4.0)]})
    before = sorted(path for path in Path(store.root).rglob("*"))
    with pytest.raises(InvalidInput, match=message):
        sql(query.format(store=store.root), root=store)
    assert sorted(path for path in Path(store.root).rglob("*")) == before


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2**53 + 1], "int64", [1, 2**53 + 1]),
        ([2**63 - 1, -(2**63) + 1], "int64", [2**63 - 1, -(2**63) + 1]),
        ([2**63, 1], "decimal128(38, 0)", [2**63, 1]),
        (
            [12345678901234567890, 12345678901234567891],
            "decimal128(38, 0)",
            [12345678901234567890, 12345678901234567891],
        ),
        ([10**38 - 1, -(10**38) + 1, None], "decimal128(38, 0)", [10**38 - 1, -(10**38) + 1, None]),
        ([10**38, 1], "string", [str(10**38), "1"]),
        ([10**400, 0.5], "string", [str(10**400), "0.5"]),
        ([2**53, 0.5], "double", [2.0**53, 0.5]),
        ([2**70, 0.5, None], "double", [2.0**70, 0.5, None]),
        ([2**53 + 1, 0.5], "string", [str(2**53 + 1), "0.5"]),
        ([12345678901234567891, 1e300], "string", ["12345678901234567891", "1e+300"]),
        ([math.inf, 3], "double", [math.inf, 3.0]),
        ([True, 1], "string", ["true", "1"]),
        ([True, None], "bool", [True, None]),
        (["a", 2**64], "string", ["a", str(2**64)]),
    ],
)
def test_the_leaderboards_params_are_exactly_what_they_are(
    store: Store, values: list[Any], kind: str, expected: list[Any]
) -> None:
    for number, value in enumerate(values):
        with init("p", {"id": value}, store.root, id=f"r{number}", system_metrics=None) as run:
            run.log({"loss": float(number)}, step=0)
    column = leaderboard("p", "loss", direction="minimize", root=store)["params.id"]
    assert (str(column.type), column.to_pylist()) == (kind, expected)
    texts = sql("select value from params order by run", root=store)["value"].to_pylist()
    assert texts == [as_text(value) for value in values]


def test_the_leaderboard_ranks_runs_by_their_best_value_with_their_params(store: Store) -> None:
    start_run(store, "b", 2.0, lr=1, kind="x")
    start_run(store, "a", 1.0, lr=0.5, kind="y")
    start_run(store, "c", math.nan, lr=2, kind=None)
    table = leaderboard("p", "loss", direction="minimize", root=store)
    chosen = table.select(["rank", "run", "value", "step", "last", "status", "params.lr", "params.kind"])
    assert list(zip(*chosen.to_pydict().values(), strict=True)) == [
        (1, "a", 1.0, 2, 3.0, "finished", 0.5, "y"),
        (2, "b", 2.0, 2, 4.0, "finished", 1.0, "x"),
    ]
    assert leaderboard("p", "loss", direction="maximize", limit=1, root=store)["run"].to_pylist() == ["b"]
    with pytest.raises(NotFound, match="no metric 'los' in"):
        leaderboard("p", "los", direction="minimize", root=store)
    with pytest.raises(NotFound, match="no project 'q'"):
        leaderboard("q", "loss", direction="minimize", root=store)
    with pytest.raises(InvalidInput, match="limit 0 is not accepted"):
        leaderboard("p", "loss", direction="minimize", limit=0, root=store)


def test_a_metric_that_only_the_last_of_many_runs_has_is_ranked(store: Store) -> None:
    start_run(store, "last", 1.0)
    for number in range(8):
        put_record(store, f"earlier-{number}")
        put_segment(store, f"earlier-{number}", 1, 0, {"other": [(0, 0, 1.0)]})
    assert leaderboard("p", "loss", direction="minimize", root=store)["run"].to_pylist() == ["last"]


def test_where_retention_left_only_rollups_they_answer_and_single_points_are_refused(tmp_path: Path) -> None:
    points = [(step, step, float((step * 7919) % 4001)) for step in range(20_000)]
    store = store_of(tmp_path, [(1, points)], "compacted")
    whole = best("r", "m", project="p", root=store, direction="maximize").to_pylist()
    manifest = read_manifest(store, "p", "r")
    kept = {
        **manifest.__dict__,
        "generation": manifest.generation + 1,
        "full": None,
        "history": {"other": manifest.rollup},
    }
    publish_manifest(store, "p", "r", type(manifest)(**kept))
    store.delete(f"metrics/project=p/{manifest.full}")
    table = curves("r", "m", project="p", root=store, max_points=100)
    assert sum(table["count"].to_pylist()) == len(points)
    assert max(table["max"].to_pylist()) == whole[0]["value"]
    assert last("r", "m", project="p", root=store)["value"].to_pylist() == [points[-1][2]]
    assert best("r", "m", project="p", root=store, direction="maximize").to_pylist() == [
        {**whole[0], "step": None, "wall_time": None}
    ]
    put_segment(store, "r", 2, 0, {"m": [(19_990, 1, -5.0)]})
    assert best("r", "m", project="p", root=store, direction="minimize")["value"].to_pylist() == [-5.0]
    for options in ({"max_points": None}, {"attempts": "raw"}):
        with pytest.raises(NotFound, match="dropped by retention"):
            curves("r", "m", project="p", root=store, **options)  # type: ignore[arg-type]
