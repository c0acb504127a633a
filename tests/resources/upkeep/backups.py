"""A store with its catalog for backups: a champion with its checkpoint, a report's page, a paused trial."""

import json
import secrets
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from halving import Store
from resources.backend import Backend
from resources.catalog import Catalog, ReportRow, SweepRow, TrialRow, utcnow
from resources.upkeep.backup_files import files_to_keep
from tests.backends import add_version, snapshot_row

_EARLIER_SNAPSHOT = {
    "digest": "sha256:s",
    "name": "points",
    "rows": 3,
    "bytes": 9,
    "schema_sha256": "s",
    "target": "y",
    "splits": {"train": 3},
    "source": "m:f",
    "transform_sha256": "t",
    "created_at": {"$time": "2026-01-01T00:00:00+00:00"},
}
EARLIER_DUMP = (
    json.dumps({"table": "snapshots", "columns": list(_EARLIER_SNAPSHOT)})
    + "\n"
    + json.dumps(list(_EARLIER_SNAPSHOT.values()))
    + "\n"
)
"""A catalog's dump of the schema 0009: one snapshot."""


def fill(backend: Backend) -> dict[str, str]:
    """Fill the store and the catalog, and return the digests by what they are."""
    store = backend.store
    part = store.put_blob(b"part")
    digests = {
        "part": part,
        "champion": store.put_blob(f'{{"halving_checkpoint": 1, "parts": ["{part}"]}}'.encode()),
        "manifest": store.put_blob(b"manifest"),
        "report": store.put_blob(b"report"),
        "page": store.put_blob(b"<p>"),
        "paused": store.put_blob(b"paused"),
    }
    with backend.catalog.write() as session:
        add_sweep(session, {"name": "small"}, {}, digests["paused"])
        session.add(
            ReportRow(
                sweep="small-1",
                digest=digests["report"],
                html=digests["page"],
                metrics={},
                created_at=utcnow(),
            )
        )
        version = {
            "checkpoint": digests["champion"],
            "manifest": digests["manifest"],
            "report": digests["report"],
        }
        add_version(session, model="small", version="1.0.0", stage="champion", updated=0, number=1, **version)
    store.create("runs/project=small/small-1.0000/record.json", b"{}")
    return digests


def add_sweep(session: Session, spec: dict[str, Any], params: dict[str, Any], checkpoint: str) -> None:
    """Add the sweep ``small-1`` with one paused trial, which has a checkpoint."""
    session.add(snapshot_row("sha256:s"))
    session.flush()
    session.add(
        SweepRow(
            id="small-1",
            name="small",
            status="searching",
            created_at=utcnow(),
            spec=spec,
            spec_digest="d",
            snapshot="sha256:s",
            driver="job",
            ordinal=0,
        )
    )
    session.flush()
    session.add(
        TrialRow(sweep="small-1", number=0, params=params, status="paused", attempt=1, checkpoint=checkpoint)
    )


def everything(store: Store) -> dict[str, bytes]:
    """The files that a backup holds."""
    return {name: store.read(name) for name, _, _ in files_to_keep(store)}


def place_of(backend: Backend) -> Store:
    """Where its backups are."""
    return Store(f"{backend.store.root}-backups")


def elsewhere(tmp_path: Path) -> tuple[Store, Catalog]:
    """An empty store and an empty catalog beside it."""
    folder = tmp_path / secrets.token_hex(3)
    return Store(folder), Catalog(f"sqlite:///{folder}-catalog/catalog.db")
