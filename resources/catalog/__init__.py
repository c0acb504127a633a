"""The catalog: control state in SQL, in an embedded SQLite file or in Postgres.

It knows tables, statements, migrations and retries; it must not know what a decision means.
"""

from resources.catalog.access_tables import AnswerRow, AuditRow, SecretRow, TokenRow
from resources.catalog.catalog import Catalog, masked, utcnow
from resources.catalog.index_tables import RunIndexRow, RunNameRow, RunRow, RunValueRow
from resources.catalog.tables import (
    AttemptRow,
    Base,
    FeatureViewRow,
    IntentRow,
    ModelVersionRow,
    RegisteredModelRow,
    ReportRow,
    RungResultRow,
    SnapshotRow,
    SweepRow,
    TrialRow,
)
from resources.catalog.tracking_tables import ExperimentRow, LoggedModelRow, TrackedArtifactRow, TrackedRunRow

__all__ = [
    "AnswerRow",
    "AttemptRow",
    "AuditRow",
    "Base",
    "Catalog",
    "ExperimentRow",
    "FeatureViewRow",
    "IntentRow",
    "LoggedModelRow",
    "ModelVersionRow",
    "RegisteredModelRow",
    "ReportRow",
    "RunIndexRow",
    "RunNameRow",
    "RunRow",
    "RunValueRow",
    "RungResultRow",
    "SecretRow",
    "SnapshotRow",
    "SweepRow",
    "TokenRow",
    "TrackedArtifactRow",
    "TrackedRunRow",
    "TrialRow",
    "masked",
    "utcnow",
]
