"""Removes the database's credentials from the fork server, which imports this before a trainable: a trial needs only the store's."""

import os

_OURS = ("HALVING_CATALOG", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")
_OF_DAGSTER = ("DAGSTER_POSTGRES", "DAGSTER_PG")

for _name in list(os.environ):
    if _name in _OURS or _name.startswith(_OF_DAGSTER):
        del os.environ[_name]
