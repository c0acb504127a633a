"""Checks of ``halving doctor``: of the catalog, of its consistency with the store, and of the cluster.

The package must not know Dagster, whose daemon :mod:`commands.doctor` checks.
"""
