"""Dagster's page of ``dataset_snapshot`` shows a snapshot's content, its changes and its lineage."""

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import dagster as dg
import pyarrow as pa

from pipelines import jobs
from resources.backend import Backend
from resources.sweep_spec import SweepSpec

Spec = Callable[..., SweepSpec]


@dg.job
def snapshot_alone() -> None:
    jobs.take_snapshot()


def march() -> pa.Table:
    """40 visits, one of them without an age."""
    ages = [20 + number if number != 7 else None for number in range(40)]
    parts = ["train"] * 24 + ["validation"] * 8 + ["test"] * 8
    return pa.table({"age": ages, "part": parts, "label": ["high", "low"] * 20})


def april() -> pa.Table:
    """The same visits, and ten more to train on: older, of another class, and with a site."""
    more = pa.table({"age": range(70, 80), "part": ["train"] * 10, "label": ["none"] * 10})
    table = pa.concat_tables([march(), more])
    return table.append_column("site", pa.array(["north", "south"] * 25))


def materialize(backend: Backend, spec: SweepSpec, instance: dg.DagsterInstance) -> dict[str, Any]:
    """Run the job; return the metadata of the snapshot's event as Dagster has stored it."""
    config = {
        "ops": {
            "take_snapshot": {
                "config": {"spec": spec.model_dump(mode="json", by_alias=True, exclude_none=True)}
            }
        }
    }
    run = snapshot_alone.execute_in_process(
        run_config=config, resources={"backend": backend}, instance=instance
    )
    record = instance.fetch_materializations(dg.AssetKey("dataset_snapshot"), limit=1).records[0]
    made = record.asset_materialization
    assert made is not None
    assert record.run_id == run.run_id
    metadata = {name: value.value for name, value in made.metadata.items()}
    assert made.tags is not None
    assert made.tags["dagster/data_version"] == metadata["digest"]
    assert made.partition == f"points@{metadata['digest'].removeprefix('sha256:')[:16]}"
    return {**metadata, "run": run.run_id}


def columns_of(metadata: dict[str, Any]) -> dict[str, dict[str, Any]]:
    records = [dict(record.data) for record in metadata["columns"].records]
    return {record.pop("column"): record for record in records}


def test_the_page_of_a_snapshot_has_counts_nulls_ranges_classes_changes_and_lineage(
    backend: Backend, small_spec: Spec
) -> None:
    dataset = {
        "name": "points",
        "target": "label",
        "split_column": "part",
        "checks": {"duplicates": "off", "schema_as_before": "off"},
    }
    with dg.DagsterInstance.ephemeral() as instance:
        first, second = (
            materialize(
                backend,
                small_spec(dataset={**dataset, "source": f"tests.assets.test_datasets:{load.__name__}"}),
                instance,
            )
            for load in (march, april)
        )
        assert len(instance.get_dynamic_partitions("datasets")) == 2

    # Counts.
    for metadata, rows, splits in ((first, 40, (24, 8, 8)), (second, 50, (34, 8, 8))):
        assert metadata["dagster/row_count"] == rows
        assert metadata["splits"] == dict(zip(("train", "validation", "test"), splits, strict=True))
        assert metadata["shards"] == 3
        assert metadata["bytes"] > 0
        assert metadata["target"] == "label"

    # Nulls and ranges.
    text = {"type": "string", "nulls": 0}
    assert columns_of(first) == {
        "age": {"type": "int64", "nulls": 1, "min": "20", "max": "59"},
        "part": {**text, "min": "test", "max": "validation"},
        "label": {**text, "min": "high", "max": "low"},
    }
    assert columns_of(second) == {
        "age": {"type": "int64", "nulls": 1, "min": "20", "max": "79"},
        "part": {**text, "min": "test", "max": "validation"},
        "label": {**text, "min": "high", "max": "none"},
        "site": {**text, "min": "north", "max": "south"},
    }

    # Classes.
    assert first["classes"] == {"high": 20, "low": 20}
    assert second["classes"] == {"high": 20, "low": 20, "none": 10}

    # What changed.
    assert "changed" not in first
    changed = second["changed"]
    assert changed["since"] == first["digest"]
    assert changed["schema"] == {"added": {"site": "string"}, "removed": {}, "changed": {}}
    assert changed["splits"] == {"test": [8, 8], "train": [24, 34], "validation": [8, 8]}
    assert set(changed["columns"]) == {"age", "label"}
    assert [column["max"] for column in changed["columns"]["age"]] == [59, 79]
    assert [column["classes"] for column in changed["columns"]["label"]] == [
        first["classes"],
        second["classes"],
    ]
    assert changed["bytes"] == {"shared": 0, "new": second["bytes"]}  # All rows have one more column.

    # Lineage.
    for metadata, load, before in ((first, march, None), (second, april, first["digest"])):
        lineage = metadata["lineage"]
        assert metadata["source"] == f"tests.assets.test_datasets:{load.__name__}"
        assert lineage["code"] == {"source": inspect.getsource(load)}
        assert lineage["packages"]["pyarrow"] == version("pyarrow")
        assert lineage["before"] == before
        assert lineage["made_by"] == {"dagster_run": metadata["run"], "job": "snapshot_alone"}
    assert first["transform_sha256"] != second["transform_sha256"], (
        "another function of the same module is other code"
    )


def test_the_same_rows_again_are_the_same_snapshot_with_its_first_lineage(
    backend: Backend, small_spec: Spec
) -> None:
    dataset = {
        "name": "points",
        "source": "tests.assets.test_datasets:march",
        "target": "label",
        "split_column": "part",
    }
    with dg.DagsterInstance.ephemeral() as instance:
        first = materialize(backend, small_spec(dataset=dataset), instance)
        again = materialize(backend, small_spec(dataset=dataset), instance)
    assert again["digest"] == first["digest"]
    assert "changed" not in again, "it has no other before it"
    assert again["lineage"] == first["lineage"]
