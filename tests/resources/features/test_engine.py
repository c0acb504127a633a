"""A fault of DuckDB's is the store's, a passing one of the store's, or of what a user named."""

from pathlib import Path

import duckdb
import pytest

from halving.errors import ExtraMissing, HalvingError, InvalidInput, StoreError, StoreUnavailable
from resources.features.engine import engine, fault_of, parser

WHAT = "dataset.source.sql = 'FROM x'"


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (
            duckdb.IOException('IO Error: No files found that match the pattern "/data/no.parquet"'),
            InvalidInput,
        ),
        (
            duckdb.HTTPException("HTTP Error: HTTP GET error on 's3://lake/no.parquet' (HTTP 404 Not Found)"),
            InvalidInput,
        ),
        (
            duckdb.HTTPException(
                "HTTP Error: Unable to connect to URL https://lake/x.parquet: 404 (Not Found)"
            ),
            InvalidInput,
        ),
        (duckdb.CatalogException("Catalog Error: Table with name nothing does not exist!"), InvalidInput),
        (duckdb.ConversionException("Conversion Error: CSV Error on Line: 503"), InvalidInput),
        (
            duckdb.InvalidInputException(
                "Invalid Input Error: File '/data/junk.parquet' too small to be a Parquet file"
            ),
            InvalidInput,
        ),
        (duckdb.IOException('IO Error: Cannot open file "/data/x.parquet": Permission denied'), StoreError),
        (
            duckdb.IOException('IO Error: Could not write file "/tmp/duckdb/x": No space left on device'),
            StoreError,
        ),
        (
            duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block of size 256.0 KiB"),
            StoreError,
        ),
        (
            duckdb.HTTPException("HTTP Error: HTTP GET error on 's3://lake/x.parquet' (HTTP 403 Forbidden)"),
            StoreError,
        ),
        (duckdb.InvalidInputException("Invalid Input Error: IOError: Truncated file"), StoreError),
        (
            duckdb.HTTPException("HTTP Error: HTTP GET error on 's3://lake/x.parquet' (HTTP 503 Slow Down)"),
            StoreUnavailable,
        ),
        (
            duckdb.HTTPException(
                "HTTP Error: Unable to connect to URL https://lake/x.parquet: 429 (Too Many Requests)"
            ),
            StoreUnavailable,
        ),
        (
            duckdb.IOException(
                "IO Error: Could not establish connection error for HTTP HEAD to 'https://lake/x.parquet'"
            ),
            StoreUnavailable,
        ),
        (
            duckdb.InvalidInputException(
                "Invalid Input Error: IOError: AWS Error NETWORK_CONNECTION during GetObject"
            ),
            StoreUnavailable,
        ),
        (
            duckdb.Error(
                "An error occurred while trying to install the extension 'httpfs': Failed to download "
                'extension "httpfs" at URL'
            ),
            ExtraMissing,
        ),
        (
            duckdb.IOException('IO Error: Extension "/home/ada/.duckdb/httpfs.duckdb_extension" not found.'),
            ExtraMissing,
        ),
    ],
)
def test_what_a_fault_means(error: duckdb.Error, meaning: type[HalvingError]) -> None:
    fault = fault_of(error, WHAT)
    assert type(fault) is meaning
    assert str(fault).startswith(WHAT)
    if meaning is ExtraMissing:
        assert "INSTALL httpfs" in str(fault)
    else:
        assert str(error) in str(fault)


def test_a_fault_is_as_duckdb_words_it_today(tmp_path: Path) -> None:
    (tmp_path / "junk.parquet").write_bytes(b"junk")
    with engine("a test") as (connection, _):
        for name in ("no.parquet", "junk.parquet"):
            with pytest.raises(duckdb.Error) as raised:
                connection.execute(f"FROM read_parquet('{tmp_path}/{name}')")
            assert type(fault_of(raised.value, WHAT)) is InvalidInput


def test_a_passing_fault_within_the_engine_may_be_tried_again() -> None:
    with pytest.raises(StoreUnavailable, match="a join failed"), engine("a join"):
        raise duckdb.HTTPException("HTTP Error: HTTP GET error on 's3://lake/x.parquet' (HTTP 503 Slow Down)")


def test_a_query_that_is_taken_to_pieces_reaches_no_file() -> None:
    with parser() as connection, pytest.raises(duckdb.PermissionException):
        connection.execute("FROM read_text('/proc/self/environ')")
