"""Feature views: features that are materialised by day, joined to labels as they were known then, and pushed online.

It knows the store; it must not know the catalog's rows, datasets, sweeps or Dagster, which stand on it or beside it.
"""
