"""A confined query reads the five views of the projects that it may see, and gets at nothing else."""

import time
from pathlib import Path
from typing import Any

import pytest

import halving
from halving import InvalidInput, Store
from halving.maintenance.compaction import compact


@pytest.fixture
def store(tmp_path: Path) -> Store:
    for project, secret in (("mine", "swordfish-1"), ("other", "swordfish-2")):
        params = {"x": project, "api_key": secret, "nested": {"password": secret}}
        run = halving.init(project, params, tmp_path / "root", id="r", system_metrics=None)
        for step in range(100):
            run.log({"loss": float(step)}, step=step)
        run.finish()
    store = Store(tmp_path / "root")
    compact(store, "other", "r")
    return store


def ask_all(store: Store, query: str, **limits: Any) -> tuple[list[str], list[Any], bool]:
    # DuckDB is imported here: what a test module holds of it until the process ends is told to be leaked.
    from halving.query.sql import Confinement, ask_confined

    return ask_confined(store, query, Confinement(**limits))


def ask(store: Store, query: str, **limits: Any) -> list[Any]:
    return ask_all(store, query, **limits)[1]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        'SELECT * FROM "/etc/passwd.csv"',
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "WITH a AS (SELECT * FROM read_blob('/etc/passwd')) SELECT * FROM a",
        "SELECT * FROM runs WHERE run IN (SELECT file FROM glob('/**'))",
        "SELECT * FROM read_parquet('{root}/metrics/project=other/run=r/*.parquet')",
        "SELECT * FROM '{root}/metrics/project=other/run=r/*.parquet'",
        "SELECT * FROM sniff_csv('/etc/passwd')",
        "SELECT * FROM _points",
        "SELECT * FROM _listing",
        "SELECT * FROM _tail",
        "SELECT * FROM main.runs",
        "WITH RECURSIVE _listing AS (SELECT 1 a) SELECT * FROM _listing",
        'SELECT * FROM (WITH "_listing" AS (SELECT 1) SELECT * FROM "_listing") a, "_listing"',
        "SELECT * FROM duckdb_views()",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM sqlite_master",
        "SELECT * FROM pragma_database_list",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_views",
        "SELECT current_setting('allowed_paths')",
        "SELECT getenv('HOME')",
        "SELECT * FROM query('SELECT * FROM duckdb_views()')",
        "SELECT * FROM query_table(['_listing'])",
        "SELECT * FROM (DESCRIBE runs)",
        "SELECT * FROM (SHOW ALL TABLES)",
        "SHOW TABLES",
        "DESCRIBE runs",
        "SUMMARIZE runs",
        "EXPLAIN SELECT * FROM metrics",
        "COPY (SELECT 1) TO '/tmp/out.csv'",
        "ATTACH '/tmp/a.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "PRAGMA database_list",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "CREATE TABLE a AS SELECT 1",
        "CREATE VIEW a AS SELECT 1",
        "DROP VIEW runs",
        "EXPORT DATABASE '/tmp/a'",
        "CALL pragma_version()",
        "SELECT 1; SELECT * FROM read_text('/etc/passwd')",
        "CREATE MACRO runs() AS TABLE SELECT 1",
        "PREPARE a AS SELECT 1",
        "USE memory",
        "VACUUM",
        "CHECKPOINT",
        "",
        "SELECT",
    ],
)
def test_no_query_gets_out(store: Store, query: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ask(store, query.replace("{root}", store.root), projects=["mine"])
    message = str(refused.value)
    assert "root:x" not in message
    assert "{root}" in query or store.root not in message


@pytest.mark.parametrize("view", ["metrics", "points", "runs", "params", "media"])
def test_views_have_only_the_projects_that_may_be_seen(store: Store, view: str) -> None:
    query = f"SELECT DISTINCT project FROM {view}"
    expected = [("mine",)] if view != "media" else []
    assert ask(store, query, projects=["mine"]) == expected
    assert len(ask(store, query)) == 2 * len(expected)
    assert ask(store, query, projects=[]) == []


def test_files_of_other_projects_cannot_be_opened_where_the_query_itself_is_let_through(store: Store) -> None:
    # The first line of defence is the query's syntax; behind it stand DuckDB's own limits.
    import duckdb

    from halving.query import sql
    from halving.query.sql_views import make_views

    with duckdb.connect() as connection:
        paths = make_views(connection, store, {"points"}, ["mine"])
        sql._lock_to_files(connection, paths)
        assert connection.execute("SELECT count(*) FROM points").fetchall() == [(100,)]
        for query in (
            f"SELECT * FROM '{store.root}/metrics/project=other/run=r/full.parquet'",
            "SELECT * FROM read_text('/etc/passwd')",
            "COPY (SELECT 1) TO '/tmp/halving-out.csv'",
            "SET enable_external_access = true",
            "ATTACH '/tmp/halving-a.db'",
        ):
            with pytest.raises(duckdb.Error):
                connection.execute(query)


def test_secrets_are_hidden_under_any_alias(store: Store) -> None:
    rows = ask(store, "SELECT name AS a, value AS b, value || '!' AS c FROM params")
    assert len(rows) == 6
    assert "swordfish" not in str(rows)


def test_what_the_views_are_for_works(store: Store) -> None:
    query = """
        WITH last AS (SELECT run, project, max(step) AS step FROM metrics GROUP BY ALL)
        SELECT p.value, m.value, row_number() OVER (ORDER BY m.value, p.value) FROM metrics m
        JOIN last USING (project, run, step) JOIN params p USING (project, run)
        WHERE p.name = 'x' AND m.key = 'loss' ORDER BY ALL
    """
    assert ask(store, query) == [("mine", 99.0, 1), ("other", 99.0, 2)]
    assert ask(store, "SELECT * FROM range(3) UNION ALL SELECT unnest([7])") == [(0,), (1,), (2,), (7,)]


def test_rows_are_limited_and_that_there_are_more_is_said(store: Store) -> None:
    columns, rows, more = ask_all(store, "SELECT step FROM metrics ORDER BY step", rows=10)
    assert (columns, len(rows), more) == (["step"], 10, True)
    assert not ask_all(store, "SELECT 1", rows=1)[2]


def test_a_query_that_takes_too_long_is_ended(store: Store) -> None:
    began = time.monotonic()
    with pytest.raises(InvalidInput, match=r"takes longer than 0\.5 s"):
        ask(
            store,
            "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range % 7 = b.range % 11",
            seconds=0.5,
        )
    assert time.monotonic() - began < 10


def test_a_query_that_takes_too_much_memory_is_refused(store: Store) -> None:
    with pytest.raises(InvalidInput, match="takes more than 64 MB"):
        ask(
            store,
            "SELECT list(repeat('x', 1000) || range::VARCHAR) FROM range(1000000)",
            memory_mb=64,
            seconds=60,
        )
