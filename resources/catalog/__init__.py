"""The catalog: control state in SQL, SQLite embedded or Postgres by URL."""

from resources.catalog.catalog import Catalog, utcnow
from resources.catalog.tables import Base, ModelVersionRow, ReportRow, RungResultRow, SnapshotRow, SweepRow, TrialRow

__all__ = [
    "Base",
    "Catalog",
    "ModelVersionRow",
    "ReportRow",
    "RungResultRow",
    "SnapshotRow",
    "SweepRow",
    "TrialRow",
    "utcnow",
]
