"""Materializations, for ops that log them and for assets that return them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from halving import HalvingError
from halving.errors import StoreUnavailable

GROUP = "halving"


@dataclass(frozen=True)
class Materialized:
    """A partition of an asset that was made.

    Attributes:
        version: digest of its content, which becomes Dagster's data version.
        inputs: of each upstream asset, the digest of what this was made from; these edges are exact, which the partition
            mapping between assets is not.
        metadata: what people see in Dagster's UI, which plots numbers over time.
    """

    asset: str
    partition: str
    version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def event(self) -> dg.AssetMaterialization:
        """The event, for ``context.log_event`` in an op."""
        tags = {"dagster/data_version": self.version}
        tags |= {f"dagster/input_data_version/{asset}": version for asset, version in self.inputs.items()}
        return dg.AssetMaterialization(self.asset, partition=self.partition, metadata=self._described(), tags=tags)

    def result(self, checks: Sequence[dg.AssetCheckResult] = ()) -> dg.MaterializeResult:
        """The result that an asset's own function returns."""
        return dg.MaterializeResult(metadata=self._described(), data_version=dg.DataVersion(self.version), check_results=checks)

    def _described(self) -> dict[str, Any]:
        return {**self.metadata, "inputs": dict(self.inputs)} if self.inputs else dict(self.metadata)


def add_partitions(context: Any, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]) -> None:
    """Add dynamic partitions; those that exist stay as they are."""
    context.instance.add_dynamic_partitions(str(partitions.name), list(keys))


def asset_link(asset: str, partition: str) -> dg.MetadataValue:
    """A link to a partition's page in Dagster's UI."""
    return dg.MetadataValue.url(f"/assets/{asset}?view=partitions&partition={partition}")


@contextmanager
def expected_failures() -> Iterator[None]:
    """An error of Halving in this block fails the step with its message, without a traceback; for good unless the store was unavailable."""
    try:
        yield
    except HalvingError as error:
        raise dg.Failure(str(error), allow_retries=isinstance(error, StoreUnavailable)) from None
