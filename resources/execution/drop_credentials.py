"""Imported by the fork server that trials are forked from, before it imports a trainable: takes the database's credentials from its
environment. Its worker keeps them; a trial needs none but the store's.
"""

import os

_OURS = ("HALVING_CATALOG", "PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE")
_OF_DAGSTER = ("DAGSTER_POSTGRES", "DAGSTER_PG")

for _name in list(os.environ):
    if _name in _OURS or _name.startswith(_OF_DAGSTER):
        del os.environ[_name]
