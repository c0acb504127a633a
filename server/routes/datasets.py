"""Dataset snapshots, by the name of their dataset."""

from datetime import datetime
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

import halving
from halving.errors import NotFound
from resources.catalog import SnapshotRow, SweepRow
from resources.datasets.diff import compare
from resources.datasets.joined_labels import joined_features
from resources.datasets.manifest import manifest_before
from resources.datasets.snapshot_catalog import find_snapshot
from resources.datasets.statistics import all_columns
from server.answers import answer
from server.identity.caller import Caller, Viewer
from server.state import Shared
from server.store_threads import reads_store

router = APIRouter(prefix="/datasets", tags=["datasets"])


class Snapshot(BaseModel):
    """An immutable snapshot."""

    key: str = Field(description="Its name in Dagster.", examples=["digits@0123456789abcdef"])
    digest: str = Field(examples=["sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"])
    rows: int
    bytes: int
    target: str = Field(description="The column to predict.", examples=["label"])
    splits: dict[str, int] = Field(
        description="Rows in each split.", examples=[{"train": 1000, "val": 200, "test": 200}]
    )
    source: str = Field(description="What it was read from.", examples=["examples.digits:load"])
    deprecated: str | None = Field(description="Why nothing is launched on it any more; null: it may be.")
    schema_sha256: str
    created_at: datetime
    sweeps: list[str] = Field(
        description="The sweeps that were launched on it, oldest first.", examples=[["digits-7f3a"]]
    )


class Column(BaseModel):
    """A column of a snapshot."""

    name: str = Field(examples=["label"])
    type: str = Field(description="Arrow's name of its type.", examples=["int64"])
    nulls: int
    min: Any = Field(description="The smallest value; null where it has no order.")
    max: Any = Field(description="The largest value.")


class JoinedColumn(BaseModel):
    """A column that is a feature."""

    name: str = Field(description="Of the column.", examples=["at_night"])
    feature: str = Field(description="Of the view.", examples=["night"])


class JoinedView(BaseModel):
    """A feature view that was joined to the labels."""

    view: str = Field(description="Its name and version.", examples=["clicks@1"])
    columns: list[JoinedColumn]
    days: int = Field(description="How many days of it were looked at.")
    first: str | None = Field(
        description="The first of them; null where there were none.", examples=["2026-03-01"]
    )
    last: str | None = Field(examples=["2026-03-14"])
    rows: int = Field(description="Of these days.")


class Content(BaseModel):
    """What a snapshot holds and where it comes from."""

    digest: str = Field(examples=["sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"])
    columns: list[Column]
    classes: dict[str, int] | None = Field(
        description="Rows of each class; null where the target has no classes."
    )
    shards: int = Field(description="In so many files.")
    views: list[JoinedView] = Field(
        description="The feature views that were joined to its labels; none where it has no features."
    )
    lineage: dict[str, Any] = Field(description="Source, code, packages, and when and by what it was taken.")
    changed: dict[str, Any] | None = Field(
        description="What changed since the snapshot before; null for the first."
    )


class Dataset(BaseModel):
    """A dataset with its snapshots, newest last."""

    name: str = Field(examples=["digits"])
    snapshots: list[Snapshot]


class Datasets(BaseModel):
    """All datasets, by name."""

    datasets: list[Dataset]


@router.get("", response_model=Datasets)
def list_datasets(state: Shared, caller: Viewer) -> Response:
    """All datasets with their snapshots.

    A token that is limited to projects sees the snapshots that sweeps of these were launched on.
    """
    with state.catalog.read() as session:
        return answer({"datasets": _datasets(session, caller)})


@router.get("/{name}", response_model=Dataset)
def one_dataset(name: Annotated[str, Path(examples=["digits"])], state: Shared, caller: Viewer) -> Response:
    """A dataset's snapshots, newest last."""
    with state.catalog.read() as session:
        datasets = _datasets(session, caller, name)
        if not datasets:
            names = ", ".join(str(dataset["name"]) for dataset in _datasets(session, caller))
            raise NotFound(f"no dataset {name!r}; there are {names or 'none yet'}")
    return answer(datasets[0])


@router.get("/{name}/{snapshot}", response_model=Content)
@reads_store
def one_snapshot(
    name: Annotated[str, Path(examples=["digits"])],
    snapshot: Annotated[
        str, Path(description="The first digits of its digest.", examples=["2c26b46b68ffc68f"])
    ],
    state: Shared,
    caller: Viewer,
) -> Response:
    """What a snapshot holds, where it comes from, and what changed since the one before."""
    with state.catalog.read() as session:
        among = visible_snapshots(session, caller)
    snapshot_row = find_snapshot(state.catalog, f"{name}@{snapshot}", among)
    manifest = halving.Dataset(state.store, snapshot_row.name, snapshot_row.digest).manifest
    before = manifest_before(state.store, manifest)
    whole = all_columns(manifest)
    changed = None
    if before is not None and among is None:
        changed = compare(before, manifest)
    content = {
        "digest": snapshot_row.digest,
        "columns": [
            {"name": each, "type": kind, "min": None, "max": None, **whole[each]}
            for each, kind in manifest["schema"].items()
        ],
        "classes": whole[snapshot_row.target].get("classes"),
        "shards": sum(map(len, manifest["shards"].values())),
        "views": [
            {name: view[name] for name in JoinedView.model_fields} for view in joined_features(manifest)
        ],
        "lineage": {
            key: value for key, value in manifest["lineage"].items() if among is None or key != "before"
        },
        "changed": changed,
    }
    return answer(content)


def visible_snapshots(session: Session, caller: Caller) -> set[str] | None:
    """The digests of the snapshots that a caller may know; None is all."""
    if caller.projects is None:
        return None
    return set(
        session.scalars(select(SweepRow.snapshot).where(SweepRow.project.in_(sorted(caller.projects))))
    )


def _datasets(session: Session, caller: Caller, name: str | None = None) -> list[dict[str, object]]:
    query = select(SnapshotRow).order_by(SnapshotRow.name, SnapshotRow.created_at)
    if name is not None:
        query = query.where(SnapshotRow.name == name)
    rows = list(session.scalars(query))
    launched = select(SweepRow.snapshot, SweepRow.project, SweepRow.id).order_by(SweepRow.created_at)
    sweeps: dict[str, list[str]] = {}
    for snapshot, project, sweep in session.execute(launched):
        if caller.sees(project):
            sweeps.setdefault(snapshot, []).append(sweep)
    visible = [row for row in rows if caller.projects is None or row.digest in sweeps]
    names = (
        "digest",
        "rows",
        "bytes",
        "target",
        "splits",
        "source",
        "deprecated",
        "schema_sha256",
        "created_at",
    )
    described = [
        (
            row.name,
            {
                "key": f"{row.name}@{row.digest.removeprefix('sha256:')[:16]}",
                **{name: getattr(row, name) for name in names},
                "sweeps": sweeps.get(row.digest, []),
            },
        )
        for row in visible
    ]
    grouped = groupby(described, key=lambda pair: pair[0])
    return [{"name": dataset, "snapshots": [snapshot for _, snapshot in pairs]} for dataset, pairs in grouped]
