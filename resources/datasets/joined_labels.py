"""Rows of a spec with features: its labels, each with what was known at its time.

They are joined while a snapshot reads them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from halving import Store
from halving.errors import InvalidInput
from halving.features.reference import parse_reference
from resources.catalog import Catalog
from resources.datasets.canonical import canonical, canonical_schema
from resources.datasets.file_sources import Part
from resources.datasets.sources import OpenedSource, open_source, resize_batches
from resources.datasets.united_parts import read_parts, unite_columns
from resources.features.join import Joined, join_features
from resources.features.partitions import digest_of_partitions
from resources.features.registry import check_registered, register
from resources.features.wanted import views_of
from resources.source_files.places import Places
from resources.sweep_spec.dataset import DatasetSource

LABEL_TIME = "ts"


@contextmanager
def open_rows(
    store: Store, catalog: Catalog, source: DatasetSource, places: Places | None = None
) -> Iterator[OpenedSource]:
    """Open a spec's source, with its labels joined to features if it names some.

    The rows must be read within the ``with`` block. A label's split is decided by its own columns, so it
    stays the same when its features change.

    Args:
        places: places that may be read; None is all that this process may read.

    Raises:
        InvalidInput: the source, a view or the labels are not accepted.
        NotFound: a view has not been materialised.
        StoreError: the store cannot be read, or the temporary disk is full.
    """
    opened = open_source(source, places)
    if source.features is None:
        yield opened
        return
    views = views_of(source)
    for view in views.values():
        check_registered(catalog, view)
    labels = _read_labels(f"dataset.{source.origin[0]}", opened)
    time = source.label_time or LABEL_TIME
    with join_features(store, labels, source.features, views, time=time, timezone=source.timezone) as joined:
        for view in views.values():
            register(catalog, view)
        facts = {
            "kind": "features",
            "labels": opened.facts,
            "features": source.features,
            **_facts_of_partitions(joined, list(views)),
        }
        key = opened.default_group or tuple(name for name in labels.schema.names if name != source.target)
        yield OpenedSource([Part(None, lambda: iter(joined.reader))], facts, key, opened.check_unchanged)


def joined_features(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The feature views that a snapshot's labels were joined with, by its lineage."""
    facts = manifest["lineage"]["source"]
    if facts["kind"] != "features":
        return []
    references = [parse_reference(feature) for feature in facts.get("features", [])]
    views = {
        reference.key: {
            "view": reference.key,
            "columns": [],
            "first": None,
            "last": None,
            **facts["views"][reference.key],
        }
        for reference in references
    }
    for reference in references:
        views[reference.key]["columns"].append({"name": reference.column, "feature": reference.feature})
    return list(views.values())


def _read_labels(field: str, opened: OpenedSource) -> pa.RecordBatchReader:
    """Read the labels as one stream of one schema."""
    batches = resize_batches(read_parts(opened.parts, unite_columns(f"{field}.files", opened.parts)))
    first = next(batches, None)
    if first is None:
        raise InvalidInput("dataset.labels is not accepted: it has no rows")
    schema = canonical_schema(first.schema, "dataset.labels")
    return pa.RecordBatchReader.from_batches(
        schema, (canonical(rows, schema, "dataset.labels") for rows in chain([first], batches))
    )


def _facts_of_partitions(joined: Joined, views: list[str]) -> dict[str, Any]:
    """The days of each view that were looked at, and the digest of what they held."""
    facts_of_views = {}
    for view in views:
        days = [partition for partition in joined.partitions if partition.definition.key == view]
        bounds = {}
        if days:
            bounds = {"first": days[0].day.isoformat(), "last": days[-1].day.isoformat()}
        rows = sum(day.rows for day in days)
        facts_of_views[view] = {
            "days": len(days),
            **bounds,
            "rows": rows,
            "partitions": digest_of_partitions(days),
        }
    return {"views": facts_of_views, "partitions": joined.digest}
