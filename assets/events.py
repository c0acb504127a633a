"""Materializations, for ops that log them and for assets that return them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import dagster as dg

from halving import HalvingError
from halving.errors import StoreUnavailable

GROUP = "halving"


@dataclass(frozen=True)
class Materialized:
    """The materialization of an asset's partition.

    Attributes:
        version: digest of its content, which becomes Dagster's data version.
        inputs: the digest that this was made from, by upstream asset; unlike the partition mapping between
            assets, these edges are exact.
        metadata: metadata in Dagster's UI, which plots numbers over time.
        page: its place on our page, as the parts of a path: ``("runs", "digits", "digits-7f3a.0007")``.
    """

    asset: str
    partition: str
    version: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    page: Sequence[str] = ()

    def event(self) -> dg.AssetMaterialization:
        """The event, for ``context.log_event`` in an op."""
        tags = {"dagster/data_version": self.version}
        tags |= {f"dagster/input_data_version/{asset}": version for asset, version in self.inputs.items()}
        return dg.AssetMaterialization(
            self.asset, partition=self.partition, metadata=self._all_metadata(), tags=tags
        )

    def result(self, checks: Sequence[dg.AssetCheckResult] = ()) -> dg.MaterializeResult:
        """The result that an asset's own function returns."""
        return dg.MaterializeResult(
            metadata=self._all_metadata(), data_version=dg.DataVersion(self.version), check_results=checks
        )

    def _all_metadata(self) -> dict[str, Any]:
        metadata = dict(self.metadata)
        if self.page:
            metadata = page_link(*self.page) | metadata
        if self.inputs:
            metadata["inputs"] = dict(self.inputs)
        return metadata


def add_partitions(context: Any, partitions: dg.DynamicPartitionsDefinition, keys: Sequence[str]) -> None:
    """Add dynamic partitions; those that exist stay as they are."""
    context.instance.add_dynamic_partitions(str(partitions.name), list(keys))


def asset_link(asset: str, partition: str) -> dg.MetadataValue:
    """A link to a partition's page in Dagster's UI."""
    return dg.MetadataValue.url(f"/assets/{asset}?view=partitions&partition={partition}")


def page_link(*parts: str) -> dict[str, dg.MetadataValue]:
    """Metadata with a link to a path of our page.

    It is empty unless ``HALVING_PAGE_URL`` says where people reach the page.
    """
    address = os.environ.get("HALVING_PAGE_URL", "").rstrip("/")
    if not address:
        return {}
    path = "/".join(quote(part, safe="") for part in parts)
    return {"halving": dg.MetadataValue.url(f"{address}/{path}")}


@contextmanager
def expected_failures() -> Iterator[None]:
    """Let an error of Halving fail the step with its message, without a traceback.

    The step may be retried only if the store was unavailable.
    """
    try:
        yield
    except HalvingError as error:
        raise dg.Failure(str(error), allow_retries=isinstance(error, StoreUnavailable)) from None
