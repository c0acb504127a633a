"""A spec from HTTP may name project functions, snapshots and listed places, and nothing else.

Nothing else of the machine gets into a snapshot.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halving import InvalidInput
from resources.backend import Backend
from resources.catalog import SnapshotRow
from resources.datasets.over_http import check_imported, check_over_http
from resources.datasets.snapshots import take_snapshot
from resources.source_files.places import Places, listed_places
from resources.sweep_spec import parse_spec
from resources.sweep_spec.dataset import DatasetSource
from tests.properties import examples

SECRET = "planted-4f1d2c"
LISTED = Places(
    (
        "/data/teams",
        "/data/one.csv",
        "s3://lake/clicks",
        "s3://far/x?endpoint_override=host:9000",
        "iceberg:lake",
    )
)
Small = Callable[..., dict[str, Any]]


def of_source(small: Small, source: Any, **changes: Any) -> Any:
    return parse_spec(small(dataset={"name": "points", "source": source, "target": "label"}, **changes))


@pytest.mark.parametrize(
    "source",
    [
        "tests.data:load",
        {"files": "/data/teams"},
        {"files": "/data/teams/2026/*.csv"},
        {"files": ["/data//teams/./a.csv", "/data/one.csv"]},
        {"folder": "/data/teams/"},
        {"delta": "/data/teams/lake", "version": 1},
        {"files": "s3://lake/clicks/**"},
        {"folder": "s3://lake/clicks"},
        {"delta": "s3://lake/clicks/table", "version": 3},
        {"files": "s3://far/x/a.csv?endpoint_override=host:9000"},
        {"iceberg": "web.clicks", "snapshot": 1, "catalog": "lake"},
        {"sql": "SELECT * FROM range(9)"},
        {
            "sql": (
                "SELECT * FROM generate_series(TIMESTAMP '2026-01-01', TIMESTAMP '2026-02-01', INTERVAL 1 "
                "DAY)"
            )
        },
        {"sql": "SELECT * FROM read_csv(['/data/teams/a.csv', '/data/one.csv'])"},
        {"sql": "FROM '/data/teams/2026/*.parquet'"},
        {"sql": 'SELECT * FROM json_each(\'{"url": "/etc/passwd"}\')'},
    ],
)
def test_what_is_listed_is_accepted(small: Small, source: Any) -> None:
    check_over_http(of_source(small, source), LISTED)


@pytest.mark.parametrize(
    ("source", "field"),
    [
        ({"files": "/etc/passwd", "format": "csv"}, "files"),
        ({"files": ["/data/teams/a.csv", "/proc/self/environ"], "format": "csv"}, "files"),
        ({"files": "/data/teamsX/a.csv"}, "files"),
        ({"files": "/data/one.csv.bak"}, "files"),
        ({"files": "/data/team?/a.csv"}, "files"),
        ({"files": "/data/*/a.csv"}, "files"),
        ({"files": "/**/a.csv"}, "files"),
        ({"files": "/data/teams/../other/a.csv"}, "files"),
        ({"files": "data/teams/a.csv"}, "files"),
        ({"files": "../a.csv"}, "files"),
        ({"files": "~/a.csv"}, "files"),
        ({"files": "file:///data/teams/a.csv"}, "files"),
        ({"files": "/data/teams/\n/a.csv"}, "files"),
        ({"folder": "/"}, "folder"),
        ({"folder": "/data"}, "folder"),
        ({"folder": "file:///etc"}, "folder"),
        ({"delta": "/data/lake", "version": 1}, "delta"),
        ({"delta": "file:///data/teams", "version": 1}, "delta"),
        ({"files": "s3://lake/clicksX/a.csv"}, "files"),
        ({"files": "s3://lake/clicks*/a.csv"}, "files"),
        ({"files": "s3://lake/clicks/../other/a.csv"}, "files"),
        ({"files": "s3://lake/clicks/%2e%2e/other/a.csv"}, "files"),
        ({"files": "s3://lake/clicks%2Fa.csv"}, "files"),
        ({"files": "s3://lake/clicks/a.csv?endpoint_override=evil:9000"}, "files"),
        ({"files": "s3://far/x/a.csv"}, "files"),
        ({"files": "s3://lake@evil/clicks/a.csv"}, "files"),
        ({"files": "s3://[/a.csv"}, "files"),
        ({"files": "gs://lake/clicks/a.csv"}, "files"),
        ({"files": "https://example.com/a.csv"}, "files"),
        ({"iceberg": "web.clicks", "snapshot": 1}, "catalog"),
        ({"iceberg": "web.clicks", "snapshot": 1, "catalog": "other"}, "catalog"),
        ({"sql": "SELECT * FROM read_blob('/proc/self/environ')"}, "sql"),
        ({"sql": "SELECT * FROM read_csv(['/data/teams/a.csv', '/etc/passwd'])"}, "sql"),
        ({"sql": "FROM '/etc/secret.csv'"}, "sql"),
        ({"sql": "SELECT * FROM glob('/etc/*')"}, "sql"),
        (
            {
                "sql": (
                    "SELECT * FROM (SELECT * FROM range(3)) a, (SELECT * FROM "
                    "read_text('/data/teams/../x')) b"
                )
            },
            "sql",
        ),
        ({"sql": "WITH a AS (SELECT * FROM sniff_csv('/etc/passwd')) SELECT * FROM a"}, "sql"),
        ({"sql": "SELECT * FROM read_csv('a.csv')"}, "sql"),
        ({"sql": "SELECT * FROM READ_PARQUET('s3://lake/clicks/a.parquet')"}, "sql"),
        ({"sql": "SELECT * FROM read_csv('https://example.com/a.csv')"}, "sql"),
        ({"sql": "ATTACH '/data/teams/a.db'"}, "sql"),
        ({"sql": "COPY (SELECT 1) TO '/data/teams/a.csv'"}, "sql"),
        ({"sql": "SET enable_external_access = true"}, "sql"),
        ({"sql": "SELECT 1; SELECT 2"}, "sql"),
    ],
)
def test_another_place_is_refused_by_its_field_before_anything_is_read(
    small: Small, source: Any, field: str
) -> None:
    for kind, more in (("source", {}), ("labels", {"features": ["clicks@1:ctr"]})):
        spec = parse_spec(small(dataset={"name": "points", kind: source, "target": "label", **more}))
        with pytest.raises(InvalidInput, match=rf"^dataset\.{kind}\.{field} = .* is not accepted"):
            check_over_http(spec, LISTED)
        if field != "sql":
            with pytest.raises(InvalidInput, match=r"HALVING_SOURCES lists: none is listed$"):
                check_over_http(spec, Places())


@pytest.mark.parametrize(
    "path",
    [
        *(
            "os:getcwd",
            "tempfile:gettempdir",
            "builtins:input",
            "os.path:expanduser",
            "posix:getcwd",
            "subprocess:Popen",
            "pathlib:Path",
        ),
        *(
            "__main__:main",
            "halving.store.store:Store",
            "resources.backend:Backend",
            "server.cli:main",
            "shutil:rmtree",
        ),
    ],
)
def test_functions_of_python_itself_and_of_the_platform_are_refused_in_each_field(
    small: Small, path: str
) -> None:
    data = {"name": "points", "source": "tests.data:load", "target": "label"}
    rest = small()
    fields: list[tuple[str, dict[str, Any]]] = [
        ("trainable", {"trainable": path}),
        ("predictor", {"predictor": path}),
        ("dataset.source", {"dataset": {**data, "source": path}}),
        ("dataset.transform", {"dataset": {**data, "transform": path}}),
        (
            "dataset.labels",
            {"dataset": {"name": "points", "target": "label", "labels": path, "features": ["clicks@1:ctr"]}},
        ),
    ]
    for field, change in fields:
        with pytest.raises(
            InvalidInput,
            match=rf"^{field} = '{path}' is not accepted over HTTP: .* own; give a function of the code",
        ):
            check_over_http(parse_spec({**rest, **change}), LISTED)
    # For external loops a trainable is only a name.
    check_over_http(parse_spec({**rest, "trainable": path}), LISTED, trains=False)


def test_a_named_snapshot_is_not_read_again_so_its_source_may_be_anything(small: Small) -> None:
    source = {"sql": "SELECT * FROM read_blob('/proc/self/environ')"}
    check_over_http(of_source(small, source, snapshot="sha256:" + "0" * 64), Places())


@pytest.mark.parametrize("name", ["Path", "getcwd", "home", "gettempdir"])
def test_what_a_module_has_only_imported_of_python_is_refused(
    small: Small, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "over_http_project.py").write_text(
        "import functools\nfrom os import getcwd\nfrom pathlib import Path\n"
        "from tempfile import gettempdir\nfrom os.path import expanduser as home\n"
        "@functools.lru_cache\ndef load(): return 1\n@functools.wraps(load)\ndef wrapped(): return "
        "1\nbound = functools.partial(load)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "over_http_project", raising=False)
    with pytest.raises(
        InvalidInput, match=rf"^dataset\.source = 'over_http_project:{name}' .* it is Python's own"
    ):
        check_imported(of_source(small, f"over_http_project:{name}"))
    for own in ("load", "wrapped", "bound"):
        check_imported(of_source(small, f"over_http_project:{own}"))


@pytest.mark.parametrize(
    "value",
    [
        "data",
        "./data",
        "~/data",
        "/data/../etc",
        "file:///data",
        "iceberg:",
        "s3:/lake",
        "s3://key:secret@lake/x",
        "/ok, nothing",
        "C:\\data",
    ],
)
def test_a_list_of_places_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        listed_places({"HALVING_SOURCES": value})
    assert "secret" not in str(refused.value)


def test_the_list_of_places_is_of_a_variable() -> None:
    assert listed_places({}) == listed_places({"HALVING_SOURCES": " , "}) == Places()
    assert listed_places({"HALVING_SOURCES": "/a, s3://b/c ,iceberg:d"}).entries == (
        "/a",
        "s3://b/c",
        "iceberg:d",
    )


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(["..", ".", "", "a", "teams", "x*", "**", "data", "?"]), max_size=7))
def test_a_path_that_is_accepted_lies_below_its_place_however_it_is_read(names: list[str]) -> None:
    path = "/" + "/".join(names)
    try:
        Places(("/data/teams",)).check("field", path)
    except InvalidInput:
        return
    assert (
        (os.path.normpath(path.replace("*", "m").replace("?", "q")) + "/")
        .lstrip("/")
        .startswith("data/teams/")
    )


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A listed folder with rows, and one beside it with a secret; links lead from the first to the second.

    The environment has the secret, too.
    """
    listed = tmp_path / "listed"
    other = tmp_path / "listed-not"
    listed.mkdir()
    other.mkdir()
    rows = pa.table({"id": list(range(300)), "label": [number % 3 for number in range(300)]})
    pq.write_table(rows, listed / "a.parquet")
    pq.write_table(rows.append_column("secret", pa.array([SECRET] * 300)), other / f"{SECRET}.parquet")
    (other / "s.csv").write_text(
        "id,label,secret\n" + "".join(f"{number},{number % 3},{SECRET}\n" for number in range(300))
    )
    (listed / "links").mkdir()
    (listed / "links" / "file.csv").symlink_to(other / "s.csv")
    (listed / "folder").symlink_to(other)
    (listed / "again").symlink_to(listed / "a.parquet")
    (tmp_path / "alias").symlink_to(listed)
    monkeypatch.setenv("PLANTED", SECRET)
    return listed, other


def spec_of(source: Any) -> DatasetSource:
    return DatasetSource.model_validate({"name": "points", "source": source, "target": "label"})


@pytest.mark.parametrize(
    "source",
    [
        {"files": "{listed}/links/*"},
        {"files": "{listed}/links/file.csv"},
        {"files": "{listed}/folder/*.parquet"},
        {"files": "{listed}/**/*.csv"},
        {"folder": "{listed}/links"},
        {"folder": "{listed}/folder"},
        {"files": "{other}/*.parquet"},
        {"files": "{listed}/../listed-not/s.csv"},
        {"delta": "{listed}/folder", "version": 0},
        {"sql": "SELECT * FROM read_csv('{listed}/links/file.csv')"},
        {"sql": "SELECT * FROM read_csv('{listed}/folder/s.csv')"},
        {"sql": "SELECT content AS secret, 1 AS label FROM read_text('{oth' || 'er}/s.csv')"},
        {"sql": "SELECT content, 1 AS label FROM read_blob('/pro' || 'c/self/environ')"},
        {"sql": "SELECT *, 1 AS label FROM query('SELECT * FROM read_text(''{other}/s.csv'')')"},
        {"sql": "SELECT file, 1 AS label FROM glob('{other}' || '/*')"},
        {"sql": "SELECT *, 1 AS label FROM read_csv(['{listed}/a.parquet', concat('{oth', 'er}/s.csv')])"},
        {
            "sql": (
                "SELECT *, 1 AS label FROM json_execute_serialized_sql(json_serialize_sql('SELECT * FROM "
                "read_text(''{other}/s.csv'')'))"
            )
        },
        {"sql": "SELECT *, 1 AS label FROM read_text('file:' || '//{other}/s.csv')"},
        {"sql": "SELECT *, 1 AS label FROM duckdb_secrets()"},
        {"sql": "SELECT *, 1 AS label FROM which_secret('s3://a', 's3')"},
        {"sql": "SELECT getenv('PLANTED') AS secret, 1 AS label"},
        {"sql": "SELECT *, 1 AS label FROM enable_logging(storage = 'file', storage_path = '{listed}/log')"},
        {"sql": "SELECT *, 1 AS label FROM sqlite_scan(concat('{other}', '/s.csv'), 'x')"},
        {"sql": "SELECT *, 1 AS label FROM read_csv('s3' || '://lake/a.csv')"},
    ],
)
def test_nothing_beside_the_listed_places_gets_into_a_snapshot_or_a_message(
    backend: Backend, places: tuple[Path, Path], source: dict[str, Any]
) -> None:
    listed, other = places
    # Only the query itself puts '{oth' || 'er}' together.
    halves = str(other)[:-4], str(other)[-4:]
    kind, text = next(iter(source.items()))
    text = (
        text.replace("{oth'", f"{halves[0]}'")
        .replace("'er}", f"'{halves[1]}")
        .format(listed=listed, other=other)
    )
    with pytest.raises(InvalidInput) as refused:
        take_snapshot(
            backend.store, backend.catalog, spec_of({**source, kind: text}), places=Places((str(listed),))
        )
    assert f"dataset.source.{kind} = " in str(refused.value)
    assert SECRET not in str(refused.value)
    with backend.catalog.read() as session:
        assert session.query(SnapshotRow).count() == 0
    assert not list(Path(backend.store.root).glob("datasets/points/*"))


@pytest.mark.parametrize(
    "source",
    [
        {"files": "{listed}/a.parquet"},
        {"files": "{listed}/*.parquet"},
        {"files": "{listed}/again", "format": "parquet"},
        {"files": "{alias}/a.parquet"},
        {"sql": "SELECT * FROM read_parquet('{listed}/*.parquet')"},
        {"sql": "FROM '{listed}/a.parquet'"},
        {"sql": "SELECT * FROM read_parquet('{lis' || 'ted}/a.parquet')"},
        {"sql": "SELECT range AS id, range % 3 AS label FROM range(300)"},
        # More than its memory: it spills.
        {
            "sql": (
                "SELECT i id, i%3 label FROM (SELECT i, repeat('x', 99) || hash(i) k FROM range(5000000) "
                "t(i) ORDER BY k) WHERE i < 300"
            )
        },
    ],
)
def test_listed_places_are_read(backend: Backend, places: tuple[Path, Path], source: dict[str, Any]) -> None:
    listed, _ = places
    alias = listed.parent / "alias"
    text = (
        next(iter(source.values()))
        .replace("{lis'", f"{str(listed)[:-3]}'")
        .replace("'ted}", f"'{str(listed)[-3:]}")
    )
    text = text.format(listed=listed, alias=alias)
    bounds = Places((str(listed), str(alias), f"{listed.parent}/nothing"))
    taken = take_snapshot(
        backend.store, backend.catalog, spec_of({**source, next(iter(source)): text}), places=bounds
    )
    assert taken.rows == 300


def test_a_listed_file_is_read_alone(backend: Backend, places: tuple[Path, Path]) -> None:
    listed, other = places
    bounds = Places((str(listed / "a.parquet"),))
    for source in ({"files": f"{listed}/a.parquet"}, {"sql": f"FROM '{listed}/a.parquet'"}):
        assert take_snapshot(backend.store, backend.catalog, spec_of(source), places=bounds).rows == 300
    for refused in (
        {"files": f"{listed}/*.parquet"},
        {"sql": f"FROM '{listed}/b.parquet'"},
        {"sql": f"FROM '{other}/{SECRET}.parquet'"},
    ):
        with pytest.raises(InvalidInput, match="over HTTP"):
            take_snapshot(backend.store, backend.catalog, spec_of(refused), places=bounds)


def test_a_delta_table_is_read_unless_its_files_are_elsewhere(
    backend: Backend, places: tuple[Path, Path]
) -> None:
    from deltalake import write_deltalake

    listed, other = places
    write_deltalake(str(listed / "table"), pq.read_table(listed / "a.parquet"))
    bounds = Places((str(listed),))
    source = spec_of({"delta": f"{listed}/table", "version": 0})
    assert take_snapshot(backend.store, backend.catalog, source, places=bounds).rows == 300
    (file,) = (listed / "table").glob("*.parquet")
    file.unlink()
    file.symlink_to(other / f"{SECRET}.parquet")
    with pytest.raises(InvalidInput, match="leads to another place") as refused:
        take_snapshot(backend.store, backend.catalog, source, places=bounds)
    assert SECRET not in str(refused.value)


def test_a_folder_of_the_projects_own_function_is_read_and_of_a_packages_refused(
    backend: Backend, places: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = places
    for home in ("project", "site-packages"):
        (tmp_path / home).mkdir()
        (tmp_path / home / f"{home[:4]}_of_folders.py").write_text(f"def load(): return {str(other)!r}\n")
        monkeypatch.syspath_prepend(tmp_path / home)
    with pytest.raises(
        InvalidInput, match=r"^dataset\.source = .* is not accepted over HTTP: it is not below"
    ):
        take_snapshot(backend.store, backend.catalog, spec_of("site_of_folders:load"), places=Places())
    source = DatasetSource.model_validate(
        {"name": "points", "source": "proj_of_folders:load", "target": "label", "splits": SHARES}
    )
    with pytest.raises(InvalidInput, match="splits"):  # Two files do not fill the splits.
        take_snapshot(backend.store, backend.catalog, source, places=Places())


SHARES = {"train": 0.5, "validation": 0.25, "test": 0.25}


def test_who_is_on_the_machine_reads_what_they_may(backend: Backend, places: tuple[Path, Path]) -> None:
    _, other = places
    assert take_snapshot(backend.store, backend.catalog, spec_of({"files": f"{other}/s.csv"})).rows == 300
