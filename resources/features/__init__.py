"""Feature views: materialised by day, joined to labels as they were known then, and pushed online.

It knows the store and, in the catalog, the versions of views and who uses them; it must not know snapshots,
the search or Dagster, which stand on it or beside it.
"""
