"""One way to say that something exists now, for ops that log it and for assets that return it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from halving import HalvingError
from halving.errors import StoreAway

GROUP = "halving"


@dataclass(frozen=True)
class Materialized:
    """A partition of an asset came into being.

    Attributes:
        asset: the asset's key.
        partition: which one.
        version: digest of its content, Dagster's data version.
        inputs: upstream asset to the digest of the very thing that it was made from; these edges are exact where
            the partition mapping between assets is not.
        metadata: what people see; numbers are plotted over time.
    """

    asset: str
    partition: str
    version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def event(self) -> dg.AssetMaterialization:
        """For ``context.log_event``, in the ops of a job."""
        tags = {"dagster/data_version": self.version}
        tags |= {f"dagster/input_data_version/{asset}": version for asset, version in self.inputs.items()}
        return dg.AssetMaterialization(self.asset, partition=self.partition, metadata=self._described(), tags=tags)

    def result(self, checks: Sequence[dg.AssetCheckResult] = ()) -> dg.MaterializeResult:
        """To return from the asset's own function."""
        return dg.MaterializeResult(metadata=self._described(), data_version=dg.DataVersion(self.version), check_results=checks)

    def _described(self) -> dict[str, Any]:
        return {**self.metadata, "inputs": dict(self.inputs)} if self.inputs else dict(self.metadata)


def add_partitions(context: Any, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]) -> None:
    """Make partitions known; those that are known already stay as they are."""
    context.instance.add_dynamic_partitions(str(partitions.name), list(keys))


def asset_link(asset: str, partition: str) -> dg.MetadataValue:
    """A link to a partition's page in Dagster's UI."""
    return dg.MetadataValue.url(f"/assets/{asset}?view=partitions&partition={partition}")


def failure(error: HalvingError, **metadata: Any) -> dg.Failure:
    """An expected end of a step: the message alone, and no retry, which would end the same way; but a store that is away comes back."""
    return dg.Failure(str(error), metadata=metadata, allow_retries=isinstance(error, StoreAway))
