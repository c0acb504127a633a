"""Take a dataset snapshot: an immutable set of shards, named by their content.

``datasets/NAME/HASH/manifest.json`` lists the shards of each split. They lie in ``shards/sha256/``, and
snapshots that have shards in common share them. The digest is a SHA-256 over the shards, the schema, the
target column, the rules of hashes and statistics (the group, the column that names the split, the identity),
and the dataset's name.

Rows are read once, dealt into splits, spooled to disk and then cut. So a snapshot of any size takes the
memory of some batches, and twice its size on disk until it is done.
"""

import contextlib
import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from halving import Dataset, Store
from halving.data.shards import open_shard, shards_of
from halving.errors import InvalidInput, NotFound
from halving.features.definition import schema_text
from halving.store.faults import store_faults
from halving.store.json_files import now
from resources.catalog import Catalog
from resources.datasets.ahead import map_ahead
from resources.datasets.canonical import canonical, canonical_schema
from resources.datasets.code_of_source import code_texts, digest_of_code, versions_of_packages
from resources.datasets.cutting import Cut, Cutter
from resources.datasets.joined_labels import open_rows
from resources.datasets.known_snapshots import Snapshot, find_schema, known_snapshot, usable
from resources.datasets.previous_snapshot import (
    PreviousKey,
    PreviousSnapshot,
    digests_of_parts,
    find_previous_key,
    find_previous_snapshot,
    newest_digest,
)
from resources.datasets.registration import adopt, publish, register
from resources.datasets.row_hashes import Words, column_words, hash_rows
from resources.datasets.scratch_folder import scratch_folder
from resources.datasets.shard_writing import GROUP, IDENTITY, ROW
from resources.datasets.sources import OpenedSource, slices, transform_rows
from resources.datasets.splits import Dealer, fold_names, make_dealer
from resources.datasets.spool import Spool
from resources.datasets.united_parts import extends, read_parts, unite_columns
from resources.source_files.columns import without_index
from resources.source_files.places import Places
from resources.sweep_spec.dataset import REQUIRED_SPLITS, DatasetSource
from resources.sweep_spec.sweep import SweepSpec

_RULES = 2
"""Version of the statistics (:mod:`resources.datasets.statistics`) and of the rules of rows and columns.

It is raised when one of them changes: then a source is read again, once, and its snapshot has a digest of its
own.
"""


def take_snapshot(
    store: Store,
    catalog: Catalog,
    source: DatasetSource,
    made_by: dict[str, Any] | None = None,
    *,
    refresh: bool = False,
    places: Places | None = None,
) -> Snapshot:
    """Read the source, store its content as a snapshot, and register it.

    The same content gives the same snapshot. It may be killed at any point: the next call deletes what was
    unfinished, and finds the shards that were finished. If the manifest was written, but is not in the
    catalog yet, the next call registers it.

    Args:
        made_by: who takes it, for the lineage, such as the Dagster run.
        refresh: whether all is read again, even files whose name, size and time have not changed.
        places: places that a spec from HTTP may read; None is all that this process may read.

    Raises:
        InvalidInput: the source's result, a column or the size is not accepted, or the source changed while
            it was read.
        StoreError: the store refuses, or the disk is full.
    """
    recipe = source.model_dump(mode="json", exclude_none=True)
    code = code_texts(source)
    transform = digest_of_code(source)
    adopt(store, catalog, source.name)
    newest = newest_digest(catalog, source.name)
    previous = find_previous_snapshot(store, catalog, recipe, transform)
    rules = _rules_of_hashes(source)
    with open_rows(store, catalog, source, places) as opened:
        digests = digests_of_parts(opened.parts)
        trusted = (
            previous is not None
            and previous.parts is not None
            and not refresh
            and _is_readable(store, previous, rules)
        )
        added = None
        if previous is not None and trusted:
            added = previous.added_parts(digests)
        if previous is not None and added == []:
            return register(store, catalog, previous.manifest)
        if (
            previous is not None
            and added is not None
            and extends(previous.read_as, [opened.parts[number] for number in added])
        ):
            read_as = previous.read_as
        else:
            added = None
            read_as = unite_columns(f"dataset.{source.origin[0]}.files", opened.parts)
        previous_key = find_previous_key(store, catalog, recipe)
        packages = versions_of_packages(source)
        with store_faults(f"cannot make a snapshot of {source.name}"), scratch_folder(store) as folder:
            cutter = Cutter(store, folder, source.target, rules, source.shard_bytes, _kinds_of_hashes(source))
            if previous is not None and added is not None:
                rows = read_parts((opened.parts[number] for number in added), read_as)
                spools, dealer, schema = _spool(
                    folder, source, opened, _schema_of(store, previous), previous_key, rows
                )
                opened.check_unchanged()
                cut = cutter.append(spools, previous)
            else:
                spools, dealer, schema = _spool(
                    folder, source, opened, None, previous_key, read_parts(opened.parts, read_as)
                )
                opened.check_unchanged()
                _check_splits(source, {split: spool.rows for split, spool in spools.items()})
                has_previous_schema = previous is not None and previous.manifest[
                    "schema_sha256"
                ] == _schema_sha256(schema)
                cut = cutter.cut(spools, previous if has_previous_schema else None)
    manifest = _manifest(source, rules, schema, cut) | {
        "recipe": recipe,
        "code_sha256": transform,
        "key": list(dealer.key),
        "read_as": None if read_as is None else schema_text(read_as),
        "lineage": {
            "source": opened.facts,
            "code": code,
            "packages": packages,
            "before": newest,
            "made_by": made_by or {},
            "made_at": now(),
        },
    }
    publish(store, manifest, opened.parts if digests is not None else None)
    return register(store, catalog, manifest)


def snapshot_for(
    store: Store,
    catalog: Catalog,
    spec: SweepSpec,
    made_by: dict[str, Any] | None = None,
    *,
    allow_deprecated: bool = False,
    refresh: bool = False,
    places: Places | None = None,
) -> Snapshot:
    """The snapshot that a spec names, or else a new one of its source.

    Args:
        allow_deprecated: whether the snapshot may be deprecated.
        refresh, places: as for :func:`take_snapshot`.

    Raises:
        InvalidInput: there is no such snapshot, it is of another dataset or schema, it is deprecated, or the
            source is not accepted. Or the spec names a snapshot, which is not taken again.
    """
    if spec.snapshot is None:
        taken = take_snapshot(store, catalog, spec.dataset, made_by, refresh=refresh, places=places)
        return _of_schema(catalog, usable(taken, "dataset", allow_deprecated=allow_deprecated), spec)
    if refresh:
        raise InvalidInput(
            f"refresh is not accepted: the spec names the snapshot {spec.snapshot!r}, and that stays as it is"
        )
    try:
        snapshot = known_snapshot(catalog, spec.snapshot)
    except NotFound as error:
        raise InvalidInput(f"snapshot = {spec.snapshot!r} is not accepted: {error}") from None
    if (snapshot.name, snapshot.target) != (spec.dataset.name, spec.dataset.target):
        raise InvalidInput(
            f"snapshot = {spec.snapshot!r} is not accepted: it is of the dataset {snapshot.name!r} "
            f"with the target {snapshot.target!r}, not of {spec.dataset.name!r} with {spec.dataset.target!r}"
        )
    _check_dealing(snapshot, spec)
    return _of_schema(catalog, usable(snapshot, "snapshot", allow_deprecated=allow_deprecated), spec)


def manifest_before(store: Store, manifest: dict[str, Any]) -> dict[str, Any] | None:
    """The manifest of the snapshot that was the dataset's newest when this one was taken.

    None if this one was the first, or the manifest is gone.
    """
    before = manifest["lineage"]["before"]
    if not before:
        return None
    with contextlib.suppress(NotFound):
        return Dataset(store, manifest["name"], before).manifest
    return None


def _check_dealing(snapshot: Snapshot, spec: SweepSpec) -> None:
    """Refuse a snapshot whose checks for leaks had other rules than the spec's.

    Shares, bounds of time and the seed are not compared: different ones may give the same snapshot, which
    keeps the recipe of the first.
    """
    recipe = _with_identity(snapshot.recipe)
    wanted = _with_identity(spec.dataset.model_dump(mode="json", exclude_none=True))
    for field in ("group", "split_column", "split_times", "checks.identity"):
        before = recipe.get(field)
        value = wanted.get(field)
        is_same = before == value
        if field == "split_times":
            is_same = bool(before) == bool(value)
        if not is_same:
            raise InvalidInput(
                f"snapshot = {spec.snapshot!r} is not accepted: "
                f"it was taken with dataset.{field} = {before!r}, and the spec has {value!r}; "
                "leave snapshot out, and one is taken as the spec says"
            )


def _with_identity(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe with ``checks.identity`` beside its own fields."""
    return {**recipe, "checks.identity": recipe.get("checks", {}).get("identity")}


def _of_schema(catalog: Catalog, snapshot: Snapshot, spec: SweepSpec) -> Snapshot:
    """Return the snapshot if it has the schema that the spec insists on."""
    wanted = spec.dataset.schema_sha256
    if wanted is not None and not snapshot.schema_sha256.startswith(wanted):
        raise InvalidInput(
            f"dataset.schema_sha256 = {wanted!r} is not accepted: {snapshot.key} has the schema "
            f"{snapshot.schema_sha256}{find_schema(catalog, snapshot, wanted)}; "
            "`halving datasets diff` shows what changed"
        )
    return snapshot


def _spool(
    folder: Path,
    source: DatasetSource,
    opened: OpenedSource,
    schema: pa.Schema | None,
    previous_key: PreviousKey | None,
    raw: Iterator[pa.RecordBatch],
) -> tuple[dict[str, Spool], Dealer, pa.Schema]:
    """Read the rows and deal them into a spool for each split.

    Args:
        schema: schema that the rows must have; None takes that of the first rows.
        raw: rows of the source, before its transform.
    """
    spools: dict[str, Spool] = {}
    dealer: Dealer | None = None
    kinds = _kinds_of_hashes(source)
    batches = map(without_index, transform_rows(source, slices(raw)))

    def prepare() -> Iterator[pa.RecordBatch]:
        nonlocal schema, dealer
        for rows in slices(batches):
            if schema is None:
                schema = canonical_schema(rows.schema)
            if dealer is None:
                dealer = make_dealer(source, schema, opened.default_group, previous_key)
            yield canonical(rows, schema)

    def deal(rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch, Words]]:
        assert dealer is not None
        words = column_words(rows)
        columns = {
            ROW: [name for name in words if name != source.split_column],
            GROUP: source.group or [],
            IDENTITY: source.checks.identity or [],
        }
        hashes = np.stack([hash_rows(words, columns[kind]) for kind in kinds], axis=1)
        splits = {split: numbers for split, numbers in dealer.deal(rows, words).items() if len(numbers)}
        if len(splits) == 1:
            return [(split, rows, hashes) for split in splits]
        return [(split, rows.take(pa.array(numbers)), hashes[numbers]) for split, numbers in splits.items()]

    try:
        for parts_of_splits in map_ahead(deal, prepare()):
            for split, rows, hashes in parts_of_splits:
                if split not in spools:
                    spools[split] = Spool(folder / "spools" / split, rows.schema)
                spools[split].append(rows, hashes)
    except BaseException:
        for spool in spools.values():
            with contextlib.suppress(OSError):  # The disk may be full.
                spool.close()
        raise
    if dealer is None or schema is None:
        field, value = source.origin
        raise InvalidInput(f"dataset.{field} = {str(value)!r} is not accepted: it has no rows")
    for spool in spools.values():
        spool.complete()
    return spools, dealer, schema


def _manifest(source: DatasetSource, rules: str, schema: pa.Schema, cut: Cut) -> dict[str, Any]:
    """The part of a manifest that does not depend on where the rows come from."""
    shards = [shard for of_split in cut.shards.values() for shard in of_split]
    manifest = {
        "name": source.name,
        "target": source.target,
        "group": source.group,
        "split_column": source.split_column,
        "identity": source.checks.identity,
        "rows": sum(shard.rows for shard in shards),
        "bytes": sum(shard.bytes for shard in shards),
        "stored": cut.stored,
        "schema": {column.name: str(column.type) for column in schema},
        "schema_sha256": _schema_sha256(schema),
        "splits": {split: sum(shard.rows for shard in of_split) for split, of_split in cut.shards.items()},
        "hashes": rules,
        "shards": {
            split: [[shard.sha256, shard.rows, shard.bytes] for shard in of_split]
            for split, of_split in cut.shards.items()
        },
        "statistics": cut.statistics,
    }
    return {**manifest, "digest": _digest(manifest)}


def _check_splits(source: DatasetSource, rows: dict[str, int]) -> None:
    """Refuse a snapshot that lacks rows to train on, to compare by or to judge on."""
    total = sum(rows.values())
    if source.split_column or source.split_times:
        field = "split_times"
        if source.split_column:
            field = f"split_column = {source.split_column!r}"
        if missing := [name for name in REQUIRED_SPLITS if not rows.get(name)]:
            raise InvalidInput(
                f"dataset.{field} is not accepted: of {total} rows none is in {missing}; there are {rows}"
            )
        return
    wanted = ["test", *fold_names(source.folds)] if source.folds else list(source.splits)
    for name in wanted:
        if not rows.get(name):
            if name.startswith("fold-"):
                share = f"folds = {source.folds}"
            else:
                share = f"splits.{name} = {source.splits[name]}"
            raise InvalidInput(
                f"dataset.{share} of {total} rows is empty; give a larger share, more rows, or a group "
                "with more values"
            )


def _digest(manifest: dict[str, Any]) -> str:
    """The digest of a snapshot: what it holds, and not where that comes from.

    It is a SHA-256 over ``SPLIT SHA256 ROWS BYTES`` lines of the shards in order, by split, then the schema's
    hash, the target and the name. The rules of hashes count, too, because checks for leaks and statistics
    depend on them.
    """
    digest = sha256()
    for split in sorted(manifest["shards"]):
        for shard in shards_of(manifest, split):
            digest.update(f"{split} {shard.sha256} {shard.rows} {shard.bytes}\n".encode())
    digest.update(
        f"schema {manifest['schema_sha256']}\ntarget {manifest['target']}\nname {manifest['name']}\n".encode()
    )
    digest.update(f"hashes {manifest['hashes']}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _is_readable(store: Store, previous: PreviousSnapshot, rules: str) -> bool:
    """Whether its hashes and its schema are those that a new manifest would have."""
    return (
        previous.manifest["hashes"] == rules
        and _schema_sha256(_schema_of(store, previous)) == previous.manifest["schema_sha256"]
    )


def _schema_of(store: Store, previous: PreviousSnapshot) -> pa.Schema:
    split, *_ = previous.manifest["shards"]
    with open_shard(store, shards_of(previous.manifest, split)[0]) as reader:
        return reader.schema


def _rules_of_hashes(source: DatasetSource) -> str:
    """Fingerprint of the settings that affect row hashes; equal ones may share cached hashes."""
    rules = [_RULES, source.group, source.split_column, source.target]
    # Without an identity the rules stay those of snapshots that were taken before identities existed.
    if source.checks.identity is not None:
        rules.append(source.checks.identity)
    return sha256(json.dumps(rules).encode()).hexdigest()[:8]


def _kinds_of_hashes(source: DatasetSource) -> list[str]:
    """The kinds of hashes of each row, in the order in which they are stored."""
    kinds = [ROW]
    if source.group:
        kinds.append(GROUP)
    if source.checks.identity:
        kinds.append(IDENTITY)
    return kinds


def _schema_sha256(schema: pa.Schema) -> str:
    """SHA-256 of the columns' names and types as text, which is the same in any version of Arrow."""
    return sha256("".join(f"{column.name}\t{column.type}\n" for column in schema).encode()).hexdigest()
