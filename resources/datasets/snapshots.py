"""Take a dataset snapshot: an immutable set of shards, named by their content.

``datasets/NAME/HASH/manifest.json`` lists the shards of each split. They lie in ``shards/sha256/``, and
snapshots that have shards in common share them.

Rows are read once, dealt into splits, spooled to disk and then cut. So a snapshot of any size takes the
memory of some batches, and twice its size on disk until it is done.
"""

from typing import Any

from halving import Store
from halving.errors import InvalidInput, NotFound
from halving.store.faults import store_faults
from resources.catalog import Catalog
from resources.datasets.cutting import Cutter
from resources.datasets.dealing import deal_rows, kinds_of_hashes
from resources.datasets.joined_labels import open_rows
from resources.datasets.manifest import build_manifest, hash_rules
from resources.datasets.plans import Append, make_plan
from resources.datasets.previous_snapshot import (
    digests_of_parts,
    find_previous_key,
    find_previous_snapshot,
    newest_digest,
)
from resources.datasets.provenance import make_lineage, trace_code, versions_of_packages
from resources.datasets.registration import adopt, publish, register
from resources.datasets.scratch_folder import scratch_folder
from resources.datasets.snapshot_catalog import (
    Snapshot,
    describe_schema_holder,
    read_snapshot,
    refuse_deprecated,
)
from resources.source_files.places import Places
from resources.sweep_spec.dataset import DatasetSource
from resources.sweep_spec.sweep import SweepSpec


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
    provenance = trace_code(source)
    adopt(store, catalog, source.name)
    newest = newest_digest(catalog, source.name)
    previous = find_previous_snapshot(store, catalog, provenance.recipe, provenance.code_sha256)
    with open_rows(store, catalog, source, places) as opened:
        digests = digests_of_parts(opened.parts)
        plan = make_plan(store, source, opened, digests, previous, refresh=refresh)
        if isinstance(plan, Append) and not plan.added:
            return register(store, catalog, plan.previous.manifest)
        previous_key = find_previous_key(store, catalog, provenance.recipe)
        packages = versions_of_packages(source)
        with store_faults(f"cannot make a snapshot of {source.name}"), scratch_folder(store) as folder:
            cutter = Cutter(
                store, folder, source.target, hash_rules(source), source.shard_bytes, kinds_of_hashes(source)
            )
            dealt = deal_rows(folder, source, plan.read(), plan.schema, opened.default_group, previous_key)
            opened.check_unchanged()
            cut = plan.cut(cutter, dealt)
    lineage = make_lineage(provenance, opened.facts, packages, newest, made_by)
    manifest = build_manifest(source, cut, dealt.schema, dealt.key, plan.read_as, provenance, lineage)
    identified_parts = None
    if digests is not None:
        identified_parts = opened.parts
    publish(store, manifest, identified_parts)
    return register(store, catalog, manifest)


def find_or_take_snapshot(
    store: Store,
    catalog: Catalog,
    spec: SweepSpec,
    made_by: dict[str, Any] | None = None,
    *,
    allow_deprecated: bool = False,
    refresh: bool = False,
    places: Places | None = None,
) -> Snapshot:
    """Find the snapshot that a spec names, or take one of its source.

    Args:
        allow_deprecated: whether the snapshot may be deprecated.
        refresh, places: as for :func:`take_snapshot`.

    Raises:
        InvalidInput: there is no such snapshot, it is of another dataset or schema, it is deprecated, or the
            source is not accepted. Or the spec names a snapshot, which is not taken again.
    """
    if spec.snapshot is None:
        field = "dataset"
        snapshot = take_snapshot(store, catalog, spec.dataset, made_by, refresh=refresh, places=places)
    elif refresh:
        raise InvalidInput(
            f"refresh is not accepted: the spec names the snapshot {spec.snapshot!r}, and that stays as it is"
        )
    else:
        field = "snapshot"
        snapshot = _find_named(catalog, spec, spec.snapshot)
    if not allow_deprecated:
        refuse_deprecated(snapshot, field)
    _check_schema(catalog, snapshot, spec)
    return snapshot


def _find_named(catalog: Catalog, spec: SweepSpec, digest: str) -> Snapshot:
    """Find the snapshot that a spec names.

    Raises:
        InvalidInput: there is none, it is of another dataset, or its rows were dealt by other columns.
    """
    try:
        snapshot = read_snapshot(catalog, digest)
    except NotFound as error:
        raise InvalidInput(f"snapshot = {digest!r} is not accepted: {error}") from None
    if (snapshot.name, snapshot.target) != (spec.dataset.name, spec.dataset.target):
        raise InvalidInput(
            f"snapshot = {digest!r} is not accepted: it is of the dataset {snapshot.name!r} "
            f"with the target {snapshot.target!r}, not of {spec.dataset.name!r} with {spec.dataset.target!r}"
        )
    recipe = spec.dataset.model_dump(mode="json", exclude_none=True)
    _check_dealing(digest, _rules_of_checks(snapshot.recipe), _rules_of_checks(recipe))
    return snapshot


def _check_dealing(digest: str, rules: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse a snapshot whose checks for leaks had other rules than the spec's.

    Shares, bounds of time and the seed are not compared: different ones may give the same snapshot, which
    keeps the recipe of the first.
    """
    for field, value in wanted.items():
        before = rules[field]
        is_same = before == value
        if field == "split_times":
            is_same = bool(before) == bool(value)
        if not is_same:
            raise InvalidInput(
                f"snapshot = {digest!r} is not accepted: "
                f"it was taken with dataset.{field} = {before!r}, and the spec has {value!r}; "
                "leave snapshot out, and one is taken as the spec says"
            )


def _rules_of_checks(recipe: dict[str, Any]) -> dict[str, Any]:
    """What a recipe says of the columns by which checks for leaks compare rows, by field."""
    rules = {field: recipe.get(field) for field in ("group", "split_column", "split_times")}
    return {**rules, "checks.identity": recipe.get("checks", {}).get("identity")}


def _check_schema(catalog: Catalog, snapshot: Snapshot, spec: SweepSpec) -> None:
    """Refuse a snapshot that has another schema than the spec insists on."""
    wanted = spec.dataset.schema_sha256
    if wanted is not None and not snapshot.schema_sha256.startswith(wanted):
        raise InvalidInput(
            f"dataset.schema_sha256 = {wanted!r} is not accepted: {snapshot.key} has the schema "
            f"{snapshot.schema_sha256}; {describe_schema_holder(catalog, snapshot.name, wanted)}; "
            "`halving datasets diff` shows what changed"
        )
