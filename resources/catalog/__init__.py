"""The catalog: control state in SQL, in an embedded SQLite file or in Postgres.

It knows tables, statements, migrations and retries; it must not know what a decision means.
"""

from resources.catalog.access_tables import AnswerRow, SecretRow, TokenRow, WriteLogRow
from resources.catalog.alert_tables import (
    AlertChannelRow,
    AlertConditionRow,
    AlertDeliveryRow,
    AlertMessageRow,
    AlertRow,
    AlertRuleRow,
    AlertWatchRow,
)
from resources.catalog.catalog import Catalog, mask_password, utcnow
from resources.catalog.clock import AHEAD_SECONDS
from resources.catalog.index_tables import RunAttemptRow, RunIndexRow, RunNameRow, RunRow, RunValueRow
from resources.catalog.journal_tables import NoteRow, SweepControlRow
from resources.catalog.sharing_tables import SavedViewRow, SharedLinkRow
from resources.catalog.tables import (
    AttemptRow,
    Base,
    FeatureViewRow,
    FormingGangRow,
    HeldGpuRow,
    IntentRow,
    ModelVersionRow,
    ProjectRow,
    PublishedModelRow,
    RegisteredModelRow,
    RegistryEventRow,
    ReportRow,
    RungResultRow,
    SnapshotRow,
    SplitLookRow,
    SweepRow,
    TrialRow,
)
from resources.catalog.tracking_tables import ExperimentRow, LoggedModelRow, TrackedArtifactRow, TrackedRunRow

__all__ = [
    "AHEAD_SECONDS",
    "AlertChannelRow",
    "AlertConditionRow",
    "AlertDeliveryRow",
    "AlertMessageRow",
    "AlertRow",
    "AlertRuleRow",
    "AlertWatchRow",
    "AnswerRow",
    "AttemptRow",
    "Base",
    "Catalog",
    "ExperimentRow",
    "FeatureViewRow",
    "FormingGangRow",
    "HeldGpuRow",
    "IntentRow",
    "LoggedModelRow",
    "ModelVersionRow",
    "NoteRow",
    "ProjectRow",
    "PublishedModelRow",
    "RegisteredModelRow",
    "RegistryEventRow",
    "ReportRow",
    "RunAttemptRow",
    "RunIndexRow",
    "RunNameRow",
    "RunRow",
    "RunValueRow",
    "RungResultRow",
    "SavedViewRow",
    "SecretRow",
    "SharedLinkRow",
    "SnapshotRow",
    "SplitLookRow",
    "SweepControlRow",
    "SweepRow",
    "TokenRow",
    "TrackedArtifactRow",
    "TrackedRunRow",
    "TrialRow",
    "WriteLogRow",
    "mask_password",
    "utcnow",
]
