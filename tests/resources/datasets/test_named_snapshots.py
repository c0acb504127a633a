"""Snapshots that a spec names, by their digest, dataset and schema."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from halving import InvalidInput, NotFound
from resources.backend import Backend
from resources.datasets.snapshot_catalog import dataset_of, deprecate, find_snapshot, read_snapshot
from resources.datasets.snapshots import find_or_take_snapshot, take_snapshot
from resources.sweep_spec import SweepSpec
from resources.sweep_spec.dataset import DatasetSource
from tests.resources.datasets.specs import POINTS, open_dataset, source


def test_a_spec_that_names_a_snapshot_runs_on_it_and_its_source_is_not_asked(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    spec = small_spec()
    taken = take_snapshot(backend.store, backend.catalog, spec.dataset)
    dataset = {"name": "points", "source": "tests.trainables:data_raising", "target": "label"}
    pinned = small_spec(dataset=dataset, snapshot=taken.digest)
    assert find_or_take_snapshot(backend.store, backend.catalog, pinned).digest == taken.digest
    for wrong, says in (
        ({"snapshot": "sha256:" + "0" * 64}, "no dataset snapshot"),
        (
            {"snapshot": taken.digest, "dataset": {**dataset, "target": "x"}},
            "with the target 'label', not of 'points' with 'x'",
        ),
    ):
        with pytest.raises(InvalidInput, match=says):
            find_or_take_snapshot(backend.store, backend.catalog, small_spec(**wrong))


_DAYS = {"split_times": {"column": "day", "validation": "2026-01-01", "test": "2026-02-01"}}


@pytest.mark.parametrize("changes", [{"group": "label"}, {"split_column": "part"}, _DAYS])
def test_a_snapshot_with_other_rules_of_leaks_than_the_spec_is_refused(
    backend: Backend, small_spec: Callable[..., SweepSpec], changes: dict[str, Any]
) -> None:
    spec = small_spec()
    taken = take_snapshot(backend.store, backend.catalog, spec.dataset)
    dataset = {**spec.dataset.model_dump(mode="json", exclude_none=True), **changes}
    with pytest.raises(
        InvalidInput, match=f"it was taken with dataset.{next(iter(changes))} = .*leave snapshot out"
    ):
        find_or_take_snapshot(
            backend.store, backend.catalog, small_spec(dataset=dataset, snapshot=taken.digest)
        )


def test_a_snapshot_is_found_by_its_digest_or_by_the_beginning_of_one(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    taken = take_snapshot(backend.store, backend.catalog, small_spec().dataset)
    for reference in (taken.digest, taken.key, f"points@{taken.digest}", taken.digest[:20], taken.key[:12]):
        assert find_snapshot(backend.catalog, reference).digest == taken.digest
    for reference in ("points", "points@", "other@" + taken.digest[7:], "sha256:", "points@%"):
        with pytest.raises(NotFound, match=taken.key):
            find_snapshot(backend.catalog, reference)


def test_the_dataset_of_a_snapshot_is_the_one_that_it_was_taken_by(backend: Backend) -> None:
    spec = source(splits={"train": 0.5, "validation": 0.2, "test": 0.3}, seed=3, group="x")
    snapshot = take_snapshot(backend.store, backend.catalog, spec)
    assert DatasetSource.model_validate(dataset_of(snapshot)) == spec


def test_nothing_is_launched_on_a_deprecated_snapshot_and_it_stays(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    taken = take_snapshot(backend.store, backend.catalog, small_spec().dataset)
    deprecate(backend.catalog, taken.digest, "labels of May are wrong")
    with pytest.raises(
        InvalidInput,
        match=f"snapshot = '{taken.key}' is not accepted: it is deprecated: labels of May are wrong",
    ):
        find_or_take_snapshot(backend.store, backend.catalog, small_spec(snapshot=taken.digest))
    for spec in (small_spec(snapshot=taken.digest), small_spec()):
        assert (
            find_or_take_snapshot(backend.store, backend.catalog, spec, allow_deprecated=True).digest
            == taken.digest
        )
    assert open_dataset(backend, taken).read("test").num_rows == taken.splits["test"]
    deprecate(backend.catalog, taken.digest, None)
    assert find_or_take_snapshot(
        backend.store, backend.catalog, small_spec(snapshot=taken.digest)
    ) == replace(taken, new=False)
    assert read_snapshot(backend.catalog, taken.digest).deprecated is None


def test_a_spec_may_insist_on_a_schema(backend: Backend, small_spec: Callable[..., SweepSpec]) -> None:
    taken = take_snapshot(backend.store, backend.catalog, source())
    wanted = {**POINTS, "schema_sha256": taken.schema_sha256[:16]}
    assert (
        find_or_take_snapshot(backend.store, backend.catalog, small_spec(dataset=wanted)).digest
        == taken.digest
    )
    with pytest.raises(
        InvalidInput,
        match=r"dataset.schema_sha256 = '00000000' is not accepted: points@.* no snapshot of it had that one",
    ):
        find_or_take_snapshot(
            backend.store, backend.catalog, small_spec(dataset={**POINTS, "schema_sha256": "0" * 8})
        )


def test_nothing_is_launched_on_a_source_whose_snapshot_is_deprecated(
    backend: Backend, small_spec: Callable[..., SweepSpec]
) -> None:
    taken = take_snapshot(backend.store, backend.catalog, small_spec().dataset)
    deprecate(backend.catalog, taken.digest, "labels of May are wrong")
    with pytest.raises(InvalidInput, match=f"dataset = '{taken.key}' is not accepted: it is deprecated"):
        find_or_take_snapshot(backend.store, backend.catalog, small_spec())
