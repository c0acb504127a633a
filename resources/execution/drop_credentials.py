"""Removes the database's credentials from the environment of the fork server, which imports this before it imports a trainable.

The worker keeps them; a trial needs no credential but the store's.
"""

import os

_OURS = ("HALVING_CATALOG", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")
_OF_DAGSTER = ("DAGSTER_POSTGRES", "DAGSTER_PG")

for _name in list(os.environ):
    if _name in _OURS or _name.startswith(_OF_DAGSTER):
        del os.environ[_name]
