"""Environment variables that users' code does not get: it needs the store, and never the database."""

from collections.abc import Mapping

_OURS = ("HALVING_CATALOG", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")
_OF_DAGSTER = ("DAGSTER_POSTGRES", "DAGSTER_PG")


def without_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that open the catalog or Dagster's database."""
    return {
        name: value
        for name, value in environment.items()
        if name not in _OURS and not name.startswith(_OF_DAGSTER)
    }
